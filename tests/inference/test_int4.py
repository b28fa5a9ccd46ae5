"""int4 weights: the rounding, the product, and whole models beside float32."""

import pytest
import torch
from torch import nn

from clearformer.builder import build
from clearformer.inference import int4
from clearformer.inference.int4 import Int4Linear, rounded
from clearformer.inference.int8 import Int8Embedding, Int8Linear
from clearformer.inference.packed_linear import HasProduct


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return nn.Linear(64, 48)


def dequantized(weight):
    numbers, scale, zero = rounded(weight)
    groups = numbers.unflatten(1, (-1, int4.GROUP))
    return ((groups - 8) * scale[..., None] + zero[..., None]).flatten(1)


def test_integers_have_four_bits_and_errors_are_at_most_two_steps(linear):
    numbers, scale, zero = rounded(linear.weight)
    assert numbers.shape == (48, 64)
    assert scale.shape == zero.shape == (48, 2)
    assert numbers.min() >= 0
    assert numbers.max() <= 15
    error = (dequantized(linear.weight) - linear.weight).abs().unflatten(1, (-1, int4.GROUP))
    assert (error <= 2 * scale[..., None] + 1e-3).all()  # the largest weights may be clipped


def test_best_range_is_better_than_full_range(linear, monkeypatch):
    weight = torch.randn(48, 64)
    best = (dequantized(weight) - weight).square().mean()
    monkeypatch.setattr(int4, "RANGES", (1.0,))
    assert best < 0.97 * (dequantized(weight) - weight).square().mean()


def test_constant_and_zero_groups_are_kept():
    weight = torch.zeros(16, 64)
    weight[:, :32] = 0.5
    torch.testing.assert_close(dequantized(weight), weight, atol=1e-6, rtol=1e-6)


def test_product_is_that_of_dequantized_weight(linear):
    ours = Int4Linear(rounded(linear.weight), linear.bias)
    weight = dequantized(linear.weight)
    x = torch.randn(3, 5, 64)
    expected = nn.functional.linear(x, weight, linear.bias)
    torch.testing.assert_close(ours(x), expected, atol=0.03, rtol=0.02)  # bfloat16
    torch.testing.assert_close(ours.weight, weight, atol=2e-3, rtol=1e-2)
    assert ours(x.bfloat16()).dtype == torch.bfloat16


def test_row_does_not_depend_on_other_rows(linear):
    ours = Int4Linear(rounded(linear.weight), linear.bias)
    x = torch.randn(7, 64) * torch.logspace(-2, 2, 7)[:, None]
    alone = torch.cat([ours(row) for row in x.split(1)])
    torch.testing.assert_close(ours(x), alone, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("bias", [True, False])
def test_product_function_is_forward(bias):
    linear = nn.Linear(64, 48, bias=bias)
    ours = Int4Linear(rounded(linear.weight), linear.bias)
    assert isinstance(ours, HasProduct)
    x = torch.randn(2, 64)
    assert ours.product(2)(x).equal(ours(x))
    assert ours.product(1)(x).dtype == torch.float32


@pytest.mark.parametrize("family", ["gpt2", "modern", "xl", "bert", "classifier", "sparse"])
def test_embedding_and_head_are_int8_and_logits_are_near(family, small, scrambled, example, logits):
    """Matrices that the kernel cannot multiply are in int8 too, so that any width works."""
    config = small(family, width=32, hidden=64, heads=4)
    model = scrambled(build(config)).eval()
    tokens = example(config)
    with torch.inference_mode():
        expected = logits(model, tokens)
        int4.quantize(model)
        found = logits(model, tokens)
    kinds = {type(each) for each in model.modules()}
    assert {Int4Linear, Int8Embedding} <= kinds
    assert not any(isinstance(each, Int4Linear) for each in model.head.modules())
    assert any(isinstance(each, Int8Linear) for each in model.head.modules())
    for ours, floats in zip(found, expected, strict=True):
        assert torch.cosine_similarity(ours.flatten(), floats.flatten(), dim=0) > 0.95
