"""The three-product CPU kernel: same function as the fused kernel, used where it is faster.

Values, gradients, dropout and empty rows are compared in tests/core/test_kernels.py.
"""

import pytest
import torch
import torch.nn.functional as F

from clearformer.core.kernels import explicit
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Full, Local
from clearformer.kernels import fast


@pytest.mark.parametrize("pattern", [Full(), Causal(), Causal() & Local(5)])
@pytest.mark.parametrize("padded", [False, True])
def test_three_products_match_in_half_precision(pattern, padded):
    shape = (2, 3, 40, 64)
    q, k, v = (torch.randn(shape, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    attention_mask = torch.ones(2, 40, dtype=torch.bool)
    attention_mask[0, 25:] = attention_mask[1] = False  # a row of padding only gives zeros
    mask = Mask(pattern, attention_mask if padded else None)
    assert fast._three_products_are_faster(q, k, None, 0.0), "the path under test is not taken"
    y = fast.fast(q, k, v, mask, None, 0.0)
    exact = [each.detach().double().requires_grad_() for each in (q, k, v)]
    wanted = explicit(*exact, mask, None, 0.0)
    assert torch.allclose(y.double(), wanted, atol=0.03)
    assert not padded or not y[1].any()
    found = torch.autograd.grad(y.float().square().sum(), (q, k, v))
    right = torch.autograd.grad(wanted.square().sum(), exact)
    for ours, theirs in zip(found, right, strict=True):
        assert (ours.double() - theirs).norm() < 0.02 * theirs.norm()


def test_learned_bias_uses_three_products(monkeypatch):
    """What torch would fall back to is several times slower; values are compared above."""
    q, k, v = (torch.randn(2, 4, 5, 4, requires_grad=True) for _ in range(3))
    bias = torch.randn(2, 4, 5, 5, requires_grad=True)
    monkeypatch.setattr(F, "scaled_dot_product_attention", None)
    fast.fast(q, k, v, Mask(Causal()), bias, 0.0).sum().backward()
    assert bias.grad.abs().sum() > 0


def test_uses_fused_kernel_without_backward(monkeypatch):
    q = torch.randn(2, 4, 5, 4, dtype=torch.bfloat16)
    monkeypatch.setattr(fast, "three_products", None)
    expected = explicit(q.float(), q.float(), q.float(), Mask(Causal()), None, 0.0)
    given = fast.fast(q, q, q, Mask(Causal()), None, 0.0)
    torch.testing.assert_close(given.float(), expected, atol=0.03, rtol=0.03)
