"""Activation recomputation: bitwise the same gradients with less memory."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from clearformer.builder import build
from clearformer.config import Dropout
from clearformer.core.cache import HiddenMemory
from clearformer.families import FAMILIES
from clearformer.training import precision, recompute

EVERYWHERE = Dropout(token=0.1, embedding=0.1, attention=0.1, hidden=0.1, residual=0.1)
VALUES = [1, 2, "attention"]


def gradients(model, batch, what, context="float32", wrap=lambda loss: loss):
    recompute.apply(model, what)
    model.zero_grad()
    torch.manual_seed(1)
    sums, _ = precision.autocast_loss(wrap(model.loss), context, torch.device("cpu"))(batch)
    sums.sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def equal(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


def kept_bytes(model, batch, what):
    """Memory that a forward pass stores for the backward pass."""
    recompute.apply(model, what)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        model.loss(batch)
    return sum(kept.values())


@pytest.mark.parametrize("what", VALUES)
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_bitwise_equal_with_dropout(family, what, small, example):
    config = small(family, dropout=EVERYWHERE, layers=3)
    model, batch = build(config).train(), example(config)
    names = [name for name, _ in model.named_parameters()]
    assert equal(gradients(model, batch, None), gradients(model, batch, what))
    assert [name for name, _ in model.named_parameters()] == names


@pytest.mark.parametrize("what", VALUES)
@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_gradients_are_bitwise_equal_in_half_precision(half, what, small, example):
    config = small("gpt2", dropout=EVERYWHERE)
    model, batch = build(config).train(), example(config)
    assert equal(gradients(model, batch, None, half), gradients(model, batch, what, half))


@pytest.mark.parametrize("what", VALUES)
def test_gradients_are_bitwise_equal_with_memory(what, small, example):
    """Three segments, each after the memory of the ones before; the memory moves on between."""
    config = small("xl", dropout=EVERYWHERE)

    def segments(value):
        torch.manual_seed(0)
        model = build(config).train()
        recompute.apply(model, value)
        caches = [HiddenMemory(12) for _ in range(config.layers)]
        for seed in range(3):
            torch.manual_seed(seed)
            sums, _ = model.loss(example(config), caches)
            sums.sum().backward()
            for cache in caches:
                cache.advance()
        return {name: p.grad for name, p in model.named_parameters()}

    assert equal(segments(None), segments(what))


@pytest.mark.parametrize("what", VALUES)
def test_compiled_model_gives_same_gradients(what, small, example):
    """Traced and differentiated by the compiler, without the C++ that takes a minute."""
    torch.compiler.reset()
    config = small("gpt2")
    model, batch = build(config).train(), example(config)
    plain = gradients(model, batch, None)
    found = gradients(
        model, batch, what, wrap=lambda loss: torch.compile(loss, backend="aot_eager")
    )
    for name, value in plain.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_recomputation_saves_activation_memory(small, example):
    config = small("gpt2", layers=12, width=32, hidden=128, vocabulary=13)
    model, batch = build(config).train(), example(config, size=4, length=12)
    kept = {what: kept_bytes(model, batch, what) for what in (None, *VALUES)}
    assert kept[1] < 0.2 * kept[None]
    assert kept[1] < kept[2] < 0.7 * kept[None]
    assert kept[2] < kept["attention"] < 0.9 * kept[None]


def test_describe_recompute_setting():
    assert [recompute.describe(what) for what in (None, 1, 3, "attention")] == [
        "nothing", "every block", "every 3. block", "attention",
    ]  # fmt: skip
