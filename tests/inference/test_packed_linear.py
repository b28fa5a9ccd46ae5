"""Packed and fast linear layers compute the same products as nn.Linear."""

import pytest
import torch
from torch import nn

from clearformer.builder import build
from clearformer.families import FAMILIES
from clearformer.inference.packed_linear import FastLinear, PackedLinear, pack, use_fast_products


def assert_near(given, expected):
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("arrange", [use_fast_products, lambda model: pack(model, rows=2)])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_same_logits(family, arrange, small, scrambled, example, logits):
    config = small(family)
    model = scrambled(build(config)).eval()
    batch = example(config)
    with torch.inference_mode():
        expected = logits(model, batch)
        arrange(model)
        for one, other in zip(logits(model, batch), expected, strict=True):
            assert_near(one, other)


def test_state_dict_is_unchanged(small):
    model = build(small("gpt2"))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    use_fast_products(model)
    for name, weight in model.state_dict().items():
        assert weight.equal(before[name])
    assert model.head.project.weight is model.embedding.token.weight


def test_tied_embedding_is_not_packed(small):
    tied, own = pack(build(small("gpt2")), 4), pack(build(small("modern")), 4)
    assert isinstance(tied.head.project, FastLinear)
    assert tied.head.project.weight is tied.embedding.token.weight
    assert isinstance(own.head.project, PackedLinear)
    assert isinstance(tied.stack.blocks[0].attention.project, PackedLinear)


def test_packed_linear_returns_original_weight():
    linear = nn.Linear(24, 40)
    assert PackedLinear(linear, 3).weight.equal(linear.weight)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(40, 24), (24, 40), (160, 1600), (161, 131), (4096, 5)])
@torch.inference_mode()
def test_products_match_linear_for_any_number_of_rows(shape, bias):
    linear = nn.Linear(*shape, bias=bias)
    quick = FastLinear(linear)
    for rows in (1, 2, 9):
        x = torch.randn(rows, shape[0])
        assert_near(quick(x), linear(x))
        assert_near(quick.product(1)(x), linear(x))
        assert_near(quick.product(1)(x[None]), linear(x[None]))
        assert_near(quick.product(8)(x[None]), linear(x[None]))
        assert_near(quick.product(1)(x.t().contiguous().t()), linear(x))
    wide = torch.randn(3, 2 * shape[0])  # a row of something larger
    assert_near(quick.product(1)(wide[1:2, : shape[0]]), linear(wide[1:2, : shape[0]]))


@torch.inference_mode()
def test_non_contiguous_weight_is_supported():
    linear = nn.Linear(160, 200)
    linear.weight.data = linear.weight.data.t().contiguous().t()
    x = torch.randn(1, 160)
    assert_near(FastLinear(linear)(x), linear(x))


def test_unsupported_dtype_keeps_linear(small):
    assert not any(
        isinstance(m, FastLinear)
        for m in use_fast_products(build(small("gpt2")).double()).modules()
    )
