"""Randomized cases: every kernel, pattern, position and cache gives the same numbers in float64."""

import math
import random

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from clearformer.core import kernels
from clearformer.core.attention import Attention
from clearformer.core.cache import HiddenMemory, KVCache
from clearformer.core.kernels import weights
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Fixed, Full, Local, Strided
from clearformer.core.positions import NoPosition, RelativeXL, Rotary
from clearformer.extensions.patterns import Each, Graph, PerHead, Region, Row, Shifted
from clearformer.extensions.positions import ALiBi
from clearformer.inference.caches import KVMemory, StaticKVCache
from clearformer.kernels.blockwise import blockwise
from clearformer.kernels.causal_xl import causal_form
from clearformer.kernels.fast import fast, three_products

KERNELS = {
    "loop": kernels.loop,
    "explicit": kernels.explicit,
    "fused": kernels.fused,
    "fast": fast,
    "blockwise": blockwise,
}
POSITIONS = {
    "none": NoPosition(),
    "rotary": Rotary(),
    "neighbours": Rotary(pairs="neighbours"),
    "xl": RelativeXL(),
    "behind": causal_form(RelativeXL()),
    "alibi": ALiBi(),
}


def near(given, expected):
    torch.testing.assert_close(given, expected, atol=1e-12, rtol=1e-12)


def a_pattern(chance, batch):
    graphs = tuple(Graph(((i % 3, 0), (2, 1)), 3) | Local(1) for i in range(max(batch, 1)))
    return chance.choice(
        [
            Full(),
            Causal(),
            Causal() & Local(chance.randint(1, 4)),
            Local(2) | Strided(chance.randint(1, 4)),
            Causal() & Fixed(3, 1),
            Causal() & Row(3),
            Causal() - Local(1),
            Graph(((0, 1), (1, 2), (2, 0), (3, 3)), 5),
            PerHead((Causal(), Local(2) & Causal())),
            Each(graphs) if batch else Full(),
            Shifted(Row(2), 1),
            Region((0, 3), (1, None)) | Causal(),
        ]
    )


def a_bias(chance, batch, heads, queries, keys):
    """None, one for all sequences, one for all heads, or one with most of it hidden."""
    hiding = torch.randn(batch, heads, queries, keys, dtype=torch.float64)
    hiding[torch.rand(hiding.shape) < 0.6] = -math.inf
    bias = chance.choice(
        [
            None,
            torch.randn(heads, queries, keys, dtype=torch.float64),
            torch.randn(batch, 1, queries, keys, dtype=torch.float64),
            hiding,
        ]
    )
    return bias if bias is None else bias.requires_grad_(chance.random() < 0.5)


@pytest.mark.parametrize("seed", range(60))
def test_kernels_agree_on_random_cases(seed):
    """Any sizes (no sequence, no query), suffixes, padding, biases of -inf, strides in memory."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    batch, groups, width = chance.choice([0, 1, 2, 3]), chance.choice([1, 2]), chance.choice([1, 4])
    heads, keys = groups * chance.choice([1, 2]), chance.choice([1, 2, 5, 7])
    queries = chance.choice([1, keys, chance.randint(0, keys)])
    q = torch.randn(batch, queries, heads, width, dtype=torch.float64).transpose(1, 2)
    k, v = torch.randn(2, width, keys, groups, batch, dtype=torch.float64).permute(0, 4, 3, 2, 1)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    attention_mask = chance.choice([None, torch.rand(batch, keys) < 0.6])
    bias = a_bias(chance, batch, heads, queries, keys)
    if bias is not None and bias.requires_grad:
        leaves.append(bias)
    mask = Mask(a_pattern(chance, batch), attention_mask)
    expected = None
    for kernel in KERNELS.values():
        y = kernel(q, k, v, mask, bias, 0.0)
        mixture = torch.arange(1.0, y.numel() + 1, dtype=y.dtype).view(y.shape).sin()
        # A tensor that no query uses is not part of the graph; adding zero includes it.
        nothing = 0 * sum(leaf.clamp(min=-9).sum() for leaf in leaves)
        gradients = torch.autograd.grad((y * mixture).sum() + nothing, leaves)
        given = [y.detach(), *gradients]
        assert all(each.isfinite().all() for each in given)
        expected = given if expected is None else expected
        near(given, expected)


@pytest.mark.parametrize("seed", range(40))
@torch.no_grad()
def test_cache_padding_and_batching_do_not_change_attention(seed):
    chance = random.Random(seed)
    torch.manual_seed(seed)
    groups, batch, tokens = (
        chance.choice([1, 2]),
        chance.choice([0, 1, 2]),
        chance.choice([1, 2, 6]),
    )
    heads, head_width = groups * chance.choice([1, 2]), chance.choice([2, 4])
    width = heads * head_width
    layer = Attention(
        width,
        heads,
        key_heads=groups,
        position=POSITIONS[chance.choice(list(POSITIONS))],
        kernel=KERNELS[chance.choice(list(KERNELS))],
    ).double()
    for parameter in layer.parameters():
        parameter.normal_()
    x = torch.randn(batch, width, tokens, dtype=torch.float64).transpose(1, 2)
    pattern = chance.choice([Causal(), Causal() & Local(3), Causal() & Fixed(3, 1)])
    expected = layer(x, Mask(pattern))
    caches = (
        KVCache(),
        StaticKVCache(batch, groups, tokens, head_width, torch.float64),
        HiddenMemory(tokens),
        KVMemory(tokens),
    )
    for cache in caches:
        sizes = [chance.randint(1, 2) for _ in range(tokens)]
        found = []
        for part in x.tensor_split([sum(sizes[:n]) for n in range(1, tokens)], dim=1):
            if part.shape[1]:
                found.append(layer(part, Mask(pattern), cache))
                cache.advance()
        near(torch.cat(found, dim=1), expected)
    padding = torch.randn(batch, 2, width, dtype=torch.float64)
    real, hidden = torch.ones(batch, tokens).bool(), torch.zeros(batch, 2).bool()
    left = Mask(pattern, torch.cat((hidden, real), dim=1))
    right = Mask(pattern, torch.cat((real, hidden), dim=1))
    near(layer(torch.cat((padding, x), dim=1), left)[:, 2:], expected)
    near(layer(torch.cat((x, padding), dim=1), right)[:, :tokens], expected)
    for row in range(batch):
        near(layer(x[row : row + 1], Mask(pattern)), expected[row : row + 1])


# --- rows that see nothing -------------------------------------------------------------------


def a_blind_row(dtype, learned):
    q, k, v = torch.randn(3, 2, 2, 4, 4, dtype=dtype)
    bias = torch.randn(2, 2, 4, 4, dtype=dtype)
    bias[0, :, 2] = -math.inf  # sees nothing by the bias alone
    bias[1, :, 1, :2] = -math.inf  # sees nothing once the mask hides what comes later
    return [
        q.requires_grad_(),
        k.requires_grad_(),
        v.requires_grad_(),
        bias.requires_grad_(learned),
    ]


@pytest.mark.parametrize("learned", [True, False], ids=["learned bias", "given bias"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pattern", [Causal(), Causal() & Local(2)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_row_with_infinite_negative_bias_yields_zero(kernel, pattern, dtype, dropout, learned):
    q, k, v, bias = tensors = a_blind_row(dtype, learned)
    leaves = [x for x in tensors if x.requires_grad]
    y = KERNELS[kernel](q, k, v, Mask(pattern), bias, dropout)
    assert not y[0, :, 2].any()
    assert not y[1, :, 1].any()
    assert y.isfinite().all()
    assert y[0, :, 3].any() or dropout
    gradients = torch.autograd.grad(y.float().square().sum(), leaves)
    assert all(each.isfinite().all() for each in gradients)
    assert not gradients[0][0, :, 2].any()
    if learned:
        assert not gradients[3][0, :, 2].any()


@pytest.mark.parametrize("kernel", KERNELS)
def test_row_with_infinite_negative_bias_yields_zero_without_mask(kernel):
    q, k, v, bias = a_blind_row(torch.float32, learned=True)
    y = KERNELS[kernel](q, k, v, Mask(), bias, 0.0)
    assert not y[0, :, 2].any()
    assert y[1, :, 1].any()
    with torch.autograd.set_detect_anomaly(True):
        y.square().sum().backward()


def test_attention_weights_sum_to_one_or_zero():
    q, k, _, bias = a_blind_row(torch.float64, learned=False)
    sums = weights(q, k, Mask(Causal()), bias).sum(dim=-1)
    expected = torch.ones_like(sums)
    expected[0, :, 2] = expected[1, :, 1] = 0.0
    near(sums, expected)


@pytest.mark.parametrize("kernel", ["explicit", "fused", "fast", "blockwise"])
@pytest.mark.parametrize("learned", [True, False])
def test_finfo_min_bias_is_not_treated_as_masked(kernel, learned):
    """Such a row attends to all visible keys equally; masked keys stay masked."""
    lowest = torch.finfo(torch.float32).min
    q, k, v = torch.randn(3, 1, 2, 4, 4)
    bias = torch.full((4, 4), lowest, requires_grad=learned)
    y = KERNELS[kernel](q.requires_grad_(), k, v, Mask(Causal() & Local(3)), bias, 0.0)
    for i in range(4):
        torch.testing.assert_close(y[:, :, i], v[:, :, max(0, i - 2) : i + 1].mean(dim=2))


@pytest.mark.parametrize("mask", [Mask(), Mask(Causal())])
def test_three_products_gradcheck_and_gradgradcheck(mask):
    q, k, v, bias = a_blind_row(torch.float64, learned=True)

    # A derivative by -inf has no meaning: finite numbers, to which -inf is added inside.
    inputs = (q, k, v, bias.detach().clamp(min=-3).requires_grad_())
    blind = torch.zeros(4, 4, dtype=torch.float64)
    blind[2] = -math.inf

    def blindly(q, k, v, bias):
        return three_products(q, k, v, mask, bias + blind, 0.0)

    assert gradcheck(blindly, inputs)
    assert gradgradcheck(blindly, inputs)
