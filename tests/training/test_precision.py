"""bfloat16 where the hardware supports it, never for weights or loss."""

import pytest
import torch

from clearformer.core.model import Batch
from clearformer.training import precision

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def float32_unless_asked():
    """Overrides the fixture: here the hardware decides."""


@pytest.fixture
def batch():
    tokens = torch.randint(0, 8, (2, 9))
    return Batch(tokens[:, :-1], tokens[:, 1:])


def test_precision_is_explicit_or_follows_hardware(monkeypatch):
    assert precision.resolve("float32", CPU) == "float32"
    assert precision.resolve("bfloat16", CPU) == "bfloat16"
    for can, chosen in (({"avx512_bf16": True}, "bfloat16"), ({"amx_bf16": True}, "bfloat16")):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda can=can: can)
        assert precision.resolve("auto", CPU) == chosen
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True})
    assert precision.resolve("auto", CPU) == "float32"
    assert precision.resolve("auto", torch.device("mps")) == "float32"


def test_float32_leaves_loss_unchanged(modern_model, batch):
    plain, _ = modern_model.loss(batch)
    same, _ = precision.autocast_loss(modern_model.loss, "float32", CPU)(batch)
    assert torch.equal(plain, same)


def test_bfloat16_is_close_with_float32_loss_and_gradients(modern_model, batch):
    plain, _ = modern_model.loss(batch)
    half, _ = precision.autocast_loss(modern_model.loss, "bfloat16", CPU)(batch)
    assert half.dtype == torch.float32
    assert not torch.equal(plain, half), "the products were not in bfloat16"
    assert torch.allclose(plain, half, rtol=0.01)
    half.sum().backward()
    assert {p.grad.dtype for p in modern_model.parameters()} == {torch.float32}
