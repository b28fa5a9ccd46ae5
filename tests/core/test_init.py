"""Weight initialization: the spread each recipe documents, independent of global random state."""

import math

import pytest
import torch
from torch import nn

from clearformer import config as c
from clearformer.builder import build, transformer
from clearformer.core.attention import Attention
from clearformer.core.block import FeedForward, GatedFeedForward
from clearformer.families import FAMILIES

WIDTH, HIDDEN, LAYERS = 64, 192, 3
WIDE = {
    "width": WIDTH,
    "hidden": HIDDEN,
    "layers": LAYERS,
    "vocabulary": 500,
    "length": 200,
    "heads": 4,
    "key_heads": None,
}


def wide(small, family, **changes):
    return build(small(family, **{**WIDE, **changes}))


def assert_spread(weight, deviation, mean=0.0):
    """Within five standard errors."""
    errors = 5 / math.sqrt(weight.numel())
    assert weight.std().item() == pytest.approx(deviation, rel=errors)
    assert weight.mean().item() == pytest.approx(mean, abs=errors * deviation)


def modules(model, *kinds):
    return [module for module in model.modules() if isinstance(module, kinds)]


def writers(model):
    """The matrices whose products are added to the residual stream."""
    return [attention.output for attention in modules(model, Attention)] + [
        layer.down for layer in modules(model, FeedForward, GatedFeedForward)
    ]


def others(model):
    """Every other matrix of the model, the head's vocabulary left out."""
    apart = {id(writer) for writer in writers(model)} | {id(model.head.project)}
    return [linear for linear in modules(model, nn.Linear) if id(linear) not in apart]


def assert_biases_are_zero(model):
    for module in modules(model, nn.Linear, nn.LayerNorm):
        assert module.bias is None or not module.bias.any()


def test_torch_default_keeps_torch_initialization(small):
    config = small("classifier")
    torch.manual_seed(5)
    bare = transformer(config)
    for name, weight in build(config, seed=5).state_dict().items():
        assert torch.equal(weight, bare.state_dict()[name])


def test_xavier_init_bounds_and_spread(small):
    model = wide(small, "original", decoder_layers=LAYERS)
    for attention in modules(model, Attention):
        limit = math.sqrt(6 / (WIDTH + WIDTH))  # three matrices stored as one
        for matrix in (*attention.project.weight.chunk(3), attention.output.weight):
            assert matrix.abs().max() <= limit
            assert_spread(matrix, limit / math.sqrt(3))
    for layer in modules(model, FeedForward):
        limit = math.sqrt(6 / (WIDTH + HIDDEN))
        for matrix in (layer.up.weight, layer.down.weight):
            assert matrix.abs().max() <= limit
            assert_spread(matrix, limit / math.sqrt(3))
    assert_biases_are_zero(model)
    # The head shares the embedding's weight; it is the embedding's spread that counts.
    assert model.head.project.weight is model.source_embedding.token.weight
    assert_spread(model.source_embedding.token.weight, WIDTH**-0.5)


def test_normal_init_spread_and_zero_biases(small):
    model = wide(small, "bert")
    for module in modules(model, nn.Linear, nn.Embedding):
        if module.weight.numel() > 1000:
            assert_spread(module.weight, 0.02)
    assert_biases_are_zero(model)
    for norm in modules(model, nn.LayerNorm):
        assert (norm.weight == 1).all()


def test_gpt2_init_scales_residual_projections(small):
    model = wide(small, "gpt2")
    assert len(writers(model)) == 2 * LAYERS
    for writer in writers(model):
        assert_spread(writer.weight, 0.02 / math.sqrt(2 * LAYERS))
    for matrix in [*others(model), *modules(model, nn.Embedding)]:
        assert_spread(matrix.weight, 0.02)
    assert_biases_are_zero(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_init_depends_only_on_seed(family, small):
    config = small(family)
    before = torch.get_rng_state()
    first = build(config, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(7)
    again, other = build(config, seed=3), build(config, seed=4)
    assert all(map(torch.equal, first.parameters(), again.parameters()))
    assert not all(map(torch.equal, first.parameters(), other.parameters()))


@pytest.mark.parametrize("init", ["xavier", "normal", "gpt2", "transformer_xl", "sparse", "modern"])
def test_every_recipe_initializes_every_architecture(init, small):
    """Grouped queries, gates, segments and two stacks: every parameter is finite."""
    shapes = (
        small("modern", init=init),
        small("bert", init=init),
        small("original", init=init, position=c.RelativeXL()),
    )
    for config in shapes:
        for parameter in build(config).parameters():
            assert parameter.isfinite().all()
