"""Float64 models compute in float64 throughout, from positions to loss."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clearformer import config as c
from clearformer.builder import build, caches
from clearformer.core import kernels
from clearformer.core.attention import Attention
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Local
from clearformer.core.positions import RelativeXL, Rotary
from clearformer.extensions.positions import ALiBi
from clearformer.inference.int8 import quantize
from clearformer.inference.packed_linear import use_fast_products
from clearformer.kernels import vocabulary_loss
from clearformer.kernels.blockwise import blockwise
from clearformer.kernels.causal_xl import causal_form
from clearformer.kernels.fast import fast

WIDTH = 8
LLAMA = {"factor": 8.0, "low": 1.0, "high": 4.0, "length": 8192}


@pytest.mark.parametrize("form", [lambda scheme: scheme, causal_form])
def test_transformer_xl_attention_matches_formula_in_float64(form):
    """Dai et al. 2019, equations of section 3.3, against a whole attention with a memory."""
    heads, tokens, memory, wide = 2, 4, 13, WIDTH // 2
    without = partial(nn.Linear, bias=False)
    layer = Attention(WIDTH, heads, bias=False, output=without, position=form(RelativeXL()))
    layer = layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    x = torch.randn(memory + tokens, WIDTH, dtype=torch.float64)
    wq, wk, wv = layer.project.weight.split(WIDTH)
    expected = []
    for i in range(memory, memory + tokens):
        merged = []
        for head in range(heads):
            own = slice(head * wide, (head + 1) * wide)
            u, v = layer.position.content[head], layer.position.distance[head]
            scores = []
            for j in range(i + 1):
                angles = [(i - j) * 10_000 ** (-2 * d / WIDTH) for d in range(WIDTH // 2)]
                waves = [*map(math.sin, angles), *map(math.cos, angles)]
                r = layer.position.project.weight[own] @ torch.tensor(waves, dtype=torch.float64)
                q, k = wq[own] @ x[i], wk[own] @ x[j]
                scores.append((q @ k + q @ r + u @ k + v @ r) / math.sqrt(wide))
            weights = torch.stack(scores).softmax(0)
            merged.append(weights @ torch.stack([wv[own] @ x[j] for j in range(i + 1)]))
        expected.append(layer.output.weight @ torch.cat(merged))
    given = layer(x[None], Mask(Causal()))[0, memory:]
    torch.testing.assert_close(given, torch.stack(expected), atol=2e-14, rtol=0)


def test_alibi_is_accurate_at_large_distances_in_half_precision():
    """bfloat16 cannot represent every distance, so that only the product is rounded."""
    q, k = torch.zeros(1, 8, 1, 2, dtype=torch.bfloat16), torch.zeros(1, 8, 400, 2)
    _, bias = ALiBi().score(q, k, None)
    exact = -torch.tensor([2.0**-n for n in range(1, 9)])[:, None] * torch.arange(399, -1, -1)
    assert torch.equal(bias[:, 0], exact.bfloat16())


def test_rotary_adds_no_state_to_attention():
    model = Attention(WIDTH, 2, position=Rotary())
    assert set(model.state_dict()) == set(Attention(WIDTH, 2).state_dict())
    assert not list(model.buffers())


class Lowest(TorchDispatchMode):
    """Records every operation whose result has less than 64 bits."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = function(*args, **(kwargs or {}))
        for each in tree_leaves(given):
            number = isinstance(each, torch.Tensor) and each.is_floating_point()
            if number and each.dtype != torch.float64:
                self.found.add(f"{function}: {each.dtype}")
        return given


FAMILIES = {
    "generator": ("generator", {}),
    "gpt2": ("gpt2", {}),
    "modern": ("modern", {"position": c.Rotary(scaling=c.Llama3Scaling(**LLAMA))}),
    "xl": ("xl", {}),
    "sparse": ("sparse", {}),
    "bert": ("bert", {}),
    "classifier": ("classifier", {}),
    "original": ("original", {}),
    "alibi": ("gpt2", {"position": c.ALiBi(), "kernel": "explicit"}),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_float64_model_has_no_lower_precision_intermediates(name, small, example, monkeypatch):
    """Forward and backward, with the loss at once and in chunks."""
    family, changes = FAMILIES[name]
    config = small(family, **changes)
    model = build(config).double()
    for chunk in (vocabulary_loss.CHUNK, 40):
        monkeypatch.setattr(vocabulary_loss, "CHUNK", chunk)
        with Lowest() as lowest:
            sums, _ = model.loss(example(config))
            sums.sum().backward()
        assert not lowest.found
        assert all(p.grad.dtype == torch.float64 for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("family", ["gpt2", "modern", "xl", "sparse"])
@torch.no_grad()
def test_cached_equals_uncached_in_float64(family, small, scrambled):
    config = small(family)
    model = scrambled(build(config).double()).eval()
    tokens = torch.randint(config.vocabulary, (2, 9))
    memory, found = caches(config), []
    for part in tokens.split((4, 1, 3, 1), dim=1):
        found.append(model(part, caches=memory))
        for cache in memory:
            cache.advance()
    torch.testing.assert_close(torch.cat(found, 1), model(tokens), atol=1e-12, rtol=0)


def test_blockwise_dropout_scale_is_float64():
    """1 / (1 - p) was rounded to float32. A value of ones sums up weights and nothing else."""
    q = torch.zeros(1, 1, 64, 2, dtype=torch.float64)
    ones = torch.ones_like(q)
    y = blockwise(q, q, ones, Mask(Causal() & Local(1)), None, 0.3)
    assert set(y.unique().tolist()) == {0.0, 1 / 0.7}


@pytest.mark.parametrize("kernel", [kernels.loop, kernels.explicit, kernels.fused, fast, blockwise])
@pytest.mark.parametrize("pattern", [Causal(), Causal() & Local(2)])
def test_dropout_of_one_yields_zero(kernel, pattern):
    q, k, v = torch.randn(3, 1, 2, 5, 4, requires_grad=True)
    y = kernel(q, k, v, Mask(pattern), None, 1.0)
    assert not y.any()
    y.sum().backward()


@torch.inference_mode()
def test_packed_and_int8_linear_accept_float64():
    matrix = nn.Sequential(nn.Linear(64, 512))
    x = torch.randn(3, 64, dtype=torch.float64)
    quick = use_fast_products(nn.Sequential(nn.Linear(64, 512))).double()
    quick.load_state_dict(matrix.state_dict())
    expected = matrix.double()(x)
    for rows in (1, 3):
        torch.testing.assert_close(quick(x[:rows]), expected[:rows], atol=1e-12, rtol=0)
    rounded = quantize(matrix)(x)
    assert rounded.dtype == torch.float64
    torch.testing.assert_close(rounded, expected, atol=0.05, rtol=0)
