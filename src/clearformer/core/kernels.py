"""Attention kernels: softmax(q k^T / sqrt(D) + bias) v, computed in three ways.

`loop` is the equations executed, `explicit` the matrix form, `fused` torch's own. They are the
same function, tested equal in value and in gradient, in training mode too. A kernel is
`kernel(q, k, v, mask, bias, dropout)`; pass another one to `Attention` to change how scores become
outputs.

Every kernel keeps three promises. A query that sees nothing yields zeros, never NaN, whether
the mask hides every key or the bias is -inf for each. Dropout is applied to the weights. Shapes
that do not fit are refused.

Axes: B batch, H query heads, G key heads (G divides H), Q queries, K keys, D head width.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.core.basic import require_broadcast, require_divisor, require_shape
from clearformer.core.masks import Mask

Kernel = Callable[[Tensor, Tensor, Tensor, Mask, Tensor | None, float], Tensor]


def weights(q: Tensor, k: Tensor, mask: Mask, bias: Tensor | None) -> Tensor:
    """The attention weights: eq. 9, eq. 13 and eq. 7. This function *is* the formula."""
    require_fitting(q, k, k, mask, bias)
    k = one_for_each_query_head(k, q)  # (B, H, K, D)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, Q, K)  eq. 9
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if not mask.hides_nothing(q.shape[-2]):
        scores = scores.masked_fill(~mask.table(q, k), -math.inf)  # eq. 13
    # A row of nothing but -inf has a softmax of NaN, in the backward pass too.
    empty = (scores == -math.inf).all(dim=-1, keepdim=True)  # (B, H, Q, 1)
    return scores.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)  # eq. 7


def loop(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float
) -> Tensor:
    """One query at a time, one key at a time. Slow, and easy to verify."""
    require_fitting(q, k, v, mask, bias)
    (batch, heads, queries, head_width), keys = q.shape, k.shape[-2]
    k, v = one_for_each_query_head(k, q), one_for_each_query_head(v, q)
    whole = (batch, heads, queries, keys)
    bias = (q.new_zeros(()) if bias is None else bias.to(q.dtype)).expand(whole)
    seen = (mask.table(q, k) & (bias != -math.inf)).tolist()
    kept = F.dropout(torch.ones(whole, dtype=q.dtype, device=q.device), dropout)
    output = torch.zeros_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                visible = [j for j in range(keys) if seen[b][h][i][j]]  # eq. 13
                if not visible:
                    continue  # sees nothing: stays zero
                scores = [
                    (q[b, h, i] * k[b, h, j]).sum() / math.sqrt(head_width) + bias[b, h, i, j]
                    for j in visible
                ]  # eq. 9
                shares = torch.stack(scores).softmax(dim=0)  # eq. 7
                output[b, h, i] = sum(
                    share * kept[b, h, i, j] * v[b, h, j]
                    for share, j in zip(shares, visible, strict=True)
                )  # eq. 8
    return output  # (B, H, Q, D)


def explicit(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float
) -> Tensor:
    """The whole table of weights at once: the seed's form, with t x t memory."""
    require_fitting(q, k, v, mask, bias)
    table = F.dropout(weights(q, k, mask, bias), dropout)  # (B, H, Q, K)
    return table @ one_for_each_query_head(v, q)  # (B, H, Q, D)  eq. 8


def fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float
) -> Tensor:
    """torch's scaled dot-product attention: the same, without keeping the t x t table."""
    require_fitting(q, k, v, mask, bias)
    queries, keys = q.shape[-2], k.shape[-2]
    hides = not mask.hides_nothing(queries)
    # Never both a mask and is_causal: torch's slower paths refuse the pair.
    triangle = hides and bias is None and mask.is_triangle(queries, keys)
    shown: Tensor | None = None
    if hides and not triangle:
        shown = mask.table(q, k)
    if bias is not None:
        bias = bias.to(q.dtype)
        shown = bias if shown is None else bias.masked_fill(~shown, float("-inf"))
    return F.scaled_dot_product_attention(
        q, k, v, shown, dropout, is_causal=triangle, enable_gqa=q.shape[1] != k.shape[1]
    )  # (B, H, Q, D)


def require_fitting(q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None) -> None:
    """Refuse shapes that would fail inside a kernel or broadcast unintentionally."""
    require_shape("q", q, ("batch", "heads", "queries", "width"), "pass q[None] for one sequence")
    batch, heads, queries, width = q.shape
    require_shape("k", k, (batch, "key heads", "keys", width), "pass keys made for these queries")
    require_shape("v", v, k.shape, "pass a value for each key")
    key_heads, keys = k.shape[1:3]
    require_divisor("key_heads", key_heads, "heads", heads)
    if keys == 0:
        raise ValueError("k has no keys, but there must be at least one: pass a key to look at")
    if bias is not None:
        whole = (batch, heads, queries, keys)
        require_broadcast("bias", bias, whole, "pass a number for each head, query and key")
    mask.require_fitting(batch, queries, keys)


def one_for_each_query_head(k: Tensor, q: Tensor) -> Tensor:
    """With grouped queries (G < H) neighbouring query heads share a key head."""
    heads, key_heads = q.shape[1], k.shape[1]
    return k if heads == key_heads else k.repeat_interleave(heads // key_heads, dim=1)
