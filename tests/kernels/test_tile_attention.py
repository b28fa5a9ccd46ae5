"""Attention over tiles: precision, dropout, and processing in pieces.

That it equals the dense kernel is in test_blockwise.py.
"""

import torch

from clearformer.core.kernels import explicit
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Local, Strided
from clearformer.kernels import tile_attention
from clearformer.kernels.tiles import tiles

MASK = Mask(Causal() & (Local(5) | Strided(5)))


def inputs(queries, keys, dtype=torch.float64, batch=2, heads=4, width=8):
    q = torch.randn(batch, heads, queries, width, dtype=dtype)
    k, v = torch.randn(2, batch, heads, keys, width, dtype=dtype)
    return [q, k, v]


def attention(q, k, v, mask, dropout=0.0):
    found = tiles(mask.pattern, 0, q.shape[2], k.shape[2], q.device)
    return tile_attention.attend(q, k, v, found, mask.attention_mask, None, dropout)


def output_and_gradients(tensors, mask):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    y = attention(*leaves, mask)
    mixture = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return [y.detach(), *torch.autograd.grad((y * mixture).sum(), leaves)]


def test_large_scores_do_not_overflow():
    tensors = [1000 * t for t in inputs(37, 37)]
    y = attention(*tensors, MASK)
    expected = explicit(*tensors, MASK, None, 0.0)
    torch.testing.assert_close(y, expected)


def test_half_precision_and_autocast_are_close_to_float32():
    tensors = inputs(37, 37, dtype=torch.float32)
    mask = MASK
    exact = attention(*tensors, mask)
    half = attention(*(t.bfloat16() for t in tensors), mask)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, atol=0.05, rtol=0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(attention(*tensors, mask), exact)


def test_processing_tiles_in_pieces_gives_same_result(monkeypatch):
    tensors, mask = inputs(37, 37), Mask(MASK.pattern, torch.rand(2, 37) > 0.3)
    whole = output_and_gradients(tensors, mask)
    monkeypatch.setattr(tile_attention, "MAX_SCORES", 1)
    torch.testing.assert_close(output_and_gradients(tensors, mask), whole)


def test_dropout_applies_to_attention_weights():
    """With the identity for values the output *is* the table of weights."""
    rate, keys = 0.4, 48
    q, k = torch.randn(2, 1, 1, keys, keys)
    identity = torch.eye(keys)[None, None]
    mask = Mask(Causal() & (Local(9) | Strided(5)))
    kept = attention(q, k, identity, mask)
    torch.manual_seed(3)
    dropped = attention(q, k, identity, mask, rate)
    zero = dropped == 0
    torch.testing.assert_close(dropped[~zero], kept[~zero] / (1 - rate))
    torch.testing.assert_close(zero[kept > 0].float().mean().item(), rate, atol=0.1, rtol=0)
    torch.manual_seed(3)
    assert torch.equal(attention(q, k, identity, mask, rate), dropped)
    assert not torch.equal(attention(q, k, identity, mask, rate), dropped)


def test_gradcheck_with_dropout():
    # Few numbers: the function is computed twice for each of them.
    tensors = inputs(11, 11, batch=1, heads=2, width=3)
    mask = Mask(Causal() & (Local(3) | Strided(4)))

    def function(*leaves):
        torch.manual_seed(3)
        return attention(*leaves, mask, 0.3)

    assert torch.autograd.gradcheck(function, [t.requires_grad_() for t in tensors])
