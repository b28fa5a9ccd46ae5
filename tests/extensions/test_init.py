"""Further initialization recipes, as published."""

import math

import pytest
import torch
from torch import nn

from clearformer.builder import build
from clearformer.core.attention import Attention
from clearformer.core.init import residual_writers
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal

WIDTH, LAYERS = 64, 3


def drawn(small, family):
    """A model with enough weights to measure how they were drawn, its writers and other matrices.

    The head's matrix is among neither.
    """
    sizes = {"width": WIDTH, "hidden": 192, "vocabulary": 500, "length": 200, "key_heads": None}
    model = build(small(family, layers=LAYERS, heads=4, **sizes))
    writers = list(residual_writers(model))
    assert len(writers) == 2 * LAYERS
    apart = {id(each) for each in [*writers, model.head.project]}
    linear = [each for each in model.modules() if isinstance(each, nn.Linear)]
    assert not any(each.bias.any() for each in linear if each.bias is not None)
    return model, writers, [each for each in linear if id(each) not in apart]


def assert_normal(weight, deviation, mean=0.0):
    """Within five standard errors."""
    errors = 5 / math.sqrt(weight.numel())
    assert weight.std().item() == pytest.approx(deviation, rel=errors)
    assert weight.mean().item() == pytest.approx(mean, abs=errors * deviation)


def test_transformer_xl_init_of_position_biases_and_norms(small):
    model, writers, others = drawn(small, "xl")
    for matrix in (*writers, *others, model.embedding.token):
        assert_normal(matrix.weight, 0.02)
    for module in model.modules():
        if isinstance(module, Attention):
            assert_normal(module.position.content, 0.02)
            assert_normal(module.position.distance, 0.02)
        elif isinstance(module, nn.LayerNorm):
            assert_normal(module.weight, 0.02, mean=1.0)


def test_sparse_init_gives_zero_logits(small):
    model, writers, others = drawn(small, "sparse")
    assert_normal(model.embedding.token.weight, 0.125 / math.sqrt(WIDTH))
    for matrix in others:
        assert_normal(matrix.weight, 0.125 / math.sqrt(matrix.in_features))
    for writer in writers:
        assert_normal(writer.weight, 0.125 / math.sqrt(writer.in_features) / math.sqrt(2 * LAYERS))
    assert not model(torch.zeros(1, 4, dtype=torch.long)).any()


def test_modern_init_makes_blocks_identity(small):
    model, writers, others = drawn(small, "modern")
    assert not any(writer.weight.any() for writer in writers)
    for matrix in others:
        assert_normal(matrix.weight, matrix.in_features**-0.5)
    assert_normal(model.embedding.token.weight, 1.0)
    assert_normal(model.head.project.weight, 0.02)
    x = torch.randn(1, 4, WIDTH)
    for block in model.stack.blocks:
        assert torch.equal(block(x, Mask(Causal())), x)
