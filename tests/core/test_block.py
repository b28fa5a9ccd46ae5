"""Transformer block: norm placement, dropout placement, and exact gradients."""

import math
import shutil

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer.core import kernels
from clearformer.core.attention import Attention
from clearformer.core.block import (
    Block,
    DecoderBlock,
    FeedForward,
    GatedFeedForward,
    post_norm,
    pre_norm,
)
from clearformer.core.cache import NO_CACHE
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal
from clearformer.core.positions import Rotary
from clearformer.extensions.layers import gelu_tanh

WIDTH, HIDDEN, HEADS = 8, 12, 2

ACTIVATIONS = {
    "relu": (F.relu, lambda x: max(0.0, x)),
    "gelu": (F.gelu, lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
    "silu": (F.silu, lambda x: x / (1 + math.exp(-x))),
}
FEED_FORWARDS = {
    **{name: (FeedForward, activation) for name, (activation, _) in ACTIVATIONS.items()},
    "swiglu": (GatedFeedForward, F.silu),
    "gated gelu": (GatedFeedForward, F.gelu),
}
RESIDUALS = {"pre": pre_norm, "post": post_norm}


def block(residual, feed_forward, width=WIDTH, rates=None):
    rates = rates or {"attention": 0.0, "hidden": 0.0, "residual": 0.0}
    make, activation = FEED_FORWARDS[feed_forward]
    return Block(
        Attention(width, HEADS, dropout=rates["attention"]),
        make(width, HIDDEN, activation, dropout=rates["hidden"]),
        (nn.LayerNorm(width), nn.LayerNorm(width)),
        RESIDUALS[residual],
        rates["residual"],
    )


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_match_formulas(name):
    activation, formula = ACTIVATIONS[name]
    x = torch.linspace(-8, 8, 65, dtype=torch.float64)
    expected = torch.tensor([formula(number) for number in x.tolist()], dtype=torch.float64)
    before = x.clone()
    torch.testing.assert_close(activation(x), expected)
    assert torch.equal(x, before)  # nothing is written over an argument


def test_hook_sees_hidden_layer_before_activation():
    """A hook sees the hidden layer before its activation, also after it was applied."""
    for feed_forward in (FeedForward(WIDTH, HIDDEN), GatedFeedForward(WIDTH, HIDDEN, F.relu)):
        seen = []
        feed_forward.up.register_forward_hook(lambda module, x, y, seen=seen: seen.append(y))
        x = torch.randn(2, 3, WIDTH)
        feed_forward(x).sum().backward()
        assert (seen[0] < 0).any()


@pytest.mark.parametrize("bias", [True, False])
def test_feed_forward_applies_two_layers_per_token(bias):
    feed_forward = FeedForward(WIDTH, HIDDEN, gelu_tanh, bias=bias)
    x = torch.randn(2, 3, WIDTH)
    by_token = [
        [feed_forward.down(gelu_tanh(feed_forward.up(token))) for token in tokens] for tokens in x
    ]
    expected = torch.stack([torch.stack(tokens) for tokens in by_token])
    torch.testing.assert_close(feed_forward(x), expected)
    assert (feed_forward.up.bias is not None) == bias
    assert (feed_forward.down.bias is not None) == bias


def test_gated_feed_forward_multiplies_gate_and_value():
    feed_forward = GatedFeedForward(WIDTH, HIDDEN)
    to_gate, to_value = feed_forward.up.weight.chunk(2)
    x = torch.randn(2, 3, WIDTH)
    gate, value = x @ to_gate.T, x @ to_value.T
    expected = (gate * torch.sigmoid(gate) * value) @ feed_forward.down.weight.T
    torch.testing.assert_close(feed_forward(x), expected)
    assert feed_forward.up.bias is None
    assert GatedFeedForward(WIDTH, HIDDEN, bias=True).up.bias.shape == (2 * HIDDEN,)


@pytest.mark.parametrize("feed_forward", ["relu", "swiglu"])
@pytest.mark.parametrize("residual", RESIDUALS)
def test_block_applies_each_dropout_at_its_place_in_training(residual, feed_forward, scrambled):
    rates = {"attention": 0.2, "hidden": 0.3, "residual": 0.4}
    layer = scrambled(block(residual, feed_forward, rates=rates)).train()
    x = torch.randn(2, 5, WIDTH)

    def attend(x):
        attention = layer.attention
        q, k, v = attention.project_heads(x, (x,))
        weights = F.dropout(kernels.weights(q, k, Mask(Causal()), None), rates["attention"])
        return attention.output((weights @ v).transpose(1, 2).flatten(-2))

    def think(x):
        up = layer.feed_forward.up(x)
        if feed_forward == "swiglu":
            gate, value = up.chunk(2, dim=-1)
            hidden = F.silu(gate) * value
        else:
            hidden = up.clamp(min=0)
        return layer.feed_forward.down(F.dropout(hidden, rates["hidden"]))

    def expected(x):
        for part, norm in ((attend, layer.attention_norm), (think, layer.feed_forward_norm)):
            if residual == "pre":
                x = x + F.dropout(part(norm(x)), rates["residual"])
            else:
                x = norm(x + F.dropout(part(x), rates["residual"]))
        return x

    torch.manual_seed(1)
    given = layer(x, Mask(Causal()))
    torch.manual_seed(1)
    torch.testing.assert_close(given, expected(x))
    rates.update(attention=0.0, hidden=0.0, residual=0.0)
    torch.testing.assert_close(layer.eval()(x, Mask(Causal())), expected(x))


@pytest.mark.parametrize("residual", RESIDUALS)
def test_decoder_block_runs_self_attention_cross_attention_feed_forward(residual, scrambled):
    layer = scrambled(
        DecoderBlock(
            Attention(WIDTH, HEADS),
            Attention(WIDTH, HEADS),
            FeedForward(WIDTH, HIDDEN, F.gelu),
            tuple(nn.LayerNorm(WIDTH) for _ in range(3)),
            RESIDUALS[residual],
        )
    )
    x, context = torch.randn(2, 4, WIDTH), torch.randn(2, 6, WIDTH)
    source = layer.cross_attention.freeze(context)
    parts = [
        (lambda x: layer.attention(x, Mask(Causal())), layer.attention_norm),
        (lambda x: layer.cross_attention(x, Mask(), source), layer.cross_attention_norm),
        (layer.feed_forward, layer.feed_forward_norm),
    ]
    expected = x
    for part, norm in parts:
        if residual == "pre":
            expected = expected + part(norm(expected))
        else:
            expected = norm(expected + part(expected))
    given = layer(x, Mask(Causal()), NO_CACHE, Mask(), source)
    torch.testing.assert_close(given, expected)


@pytest.mark.parametrize("feed_forward", FEED_FORWARDS)
@pytest.mark.parametrize("residual", RESIDUALS)
def test_gradcheck(residual, feed_forward, scrambled):
    layer = scrambled(block(residual, feed_forward, width=4).double())
    parameters = dict(layer.named_parameters())
    attention_mask = torch.tensor([[False, True, True], [True, True, True]])

    def run(x, *values):
        named = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(layer, named, (x, Mask(Causal(), attention_mask)))

    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (x, *parameters.values()))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_compiled_block_matches_eager(scrambled):
    layer = scrambled(
        Block(
            Attention(WIDTH, HEADS, key_heads=1, position=Rotary()),
            GatedFeedForward(WIDTH, HIDDEN),
            (nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)),
            pre_norm,
        )
    )
    mask = Mask(Causal(), torch.tensor([[False, True, True, True], [True] * 4]))

    def values_and_gradients(layer):
        x = torch.linspace(-2, 2, 2 * 4 * WIDTH).view(2, 4, WIDTH).requires_grad_()
        y = layer(x, mask)
        return [y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])]

    compiled = torch.compile(layer, fullgraph=True)
    torch.testing.assert_close(
        values_and_gradients(compiled), values_and_gradients(layer), atol=1e-5, rtol=1e-4
    )
