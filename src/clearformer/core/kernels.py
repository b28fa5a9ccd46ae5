"""How scores become outputs: softmax(q k^T / sqrt(D) + bias) v, four times.

`loop` is the equations executed, `explicit` the matrix form, `fused` the fast one (the
default), `blockwise` the one for sparse patterns. They are the same function, tested equal in
value and in gradient, in training mode too. A kernel is `kernel(q, k, v, mask, bias, dropout)`;
pass another one to `Attention` to change how scores become outputs.

Three promises that every kernel keeps. A query that sees nothing yields zeros, never NaN, whether
the mask hides every key or the bias is -inf for each. Dropout falls on the weights. Shapes that do
not fit are refused.

Axes: B batch, H query heads, G key heads (G divides H), Q queries, K keys, D head width.
"""

import math
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.core.masks import Mask, first_kept
from clearformer.core.patterns import Pattern
from clearformer.core.shapes import require_broadcast, require_shape
from clearformer.kernels import blockwise as tilewise
from clearformer.kernels.flex import flex
from clearformer.kernels.tiles import tiles

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
    """One query at a time, one key at a time. Slow, and obviously right."""
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
    if _quicker_unfused(q, k, bias, dropout):
        return _in_three_products(q, k, v, mask, bias, dropout)
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


def _quicker_unfused(q: Tensor, k: Tensor, bias: Tensor | None, dropout: float) -> bool:
    """On a CPU, when a backward pass is to come: where torch has no fused kernel, or a slow one."""
    if q.device.type != "cpu" or not q.requires_grad or q.shape[1] != k.shape[1]:
        return False
    if bias is not None:
        # torch's fused kernel gives no gradient to a bias, and what it falls back to copies
        # the table a dozen times (docs/log.md).
        return bias.requires_grad
    # torch's fused kernel then takes 2 to 8 times as long as three plain products (docs/log.md);
    # it knows no dropout, and what it falls back to takes twice as long at any length.
    short = k.shape[-2] <= (512 if k.shape[-1] >= 64 else 256)
    return q.dtype == torch.bfloat16 and (short or dropout > 0)


def _in_three_products(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float
) -> Tensor:
    """The table in memory for a short time; what is added is added within the first product."""
    whole = (*q.shape[:3], k.shape[-2])  # (B, H, Q, K)
    keys, values = k.flatten(0, 1).transpose(1, 2), v.flatten(0, 1)  # (B*H, D, K), (B*H, K, D)
    shown = None if mask.hides_nothing(q.shape[-2]) else mask.table(q, k)  # broadcasts to whole
    # Added and not filled in: the backward pass then has nothing to do.
    added = q.new_zeros(1) if shown is None else _minus_infinity(~shown, q)
    if bias is not None:
        added = added + bias.to(q.dtype)
    # A row that sees nothing would be NaN: it gets equal weights, and zeros in the end. Filled in
    # behind autograd's back: nothing of a sum is kept for the backward pass, and the gradient of
    # such a row is zero.
    empty = added.detach().amax(dim=-1, keepdim=True) == -math.inf
    added.detach().masked_fill_(empty, 0.0)
    scores = torch.baddbmm(
        added.expand(whole).flatten(0, 1),
        q.flatten(0, 1),
        keys,
        beta=0 if bias is None and shown is None else 1,  # 0: nothing to add, nothing is read
        alpha=1 / math.sqrt(q.shape[-1]),
    )  # (B*H, Q, K)
    y = (F.dropout(scores.softmax(dim=-1), dropout) @ values).view_as(q)  # (B, H, Q, D)
    return y if bias is None and shown is None else y * ~empty


def _minus_infinity(hidden: Tensor, like: Tensor) -> Tensor:
    return like.new_zeros(hidden.shape).masked_fill_(hidden, -math.inf)


def blockwise(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float
) -> Tensor:
    """Only the tiles that a sparse pattern touches; a dense pattern is left to `fused`.

    Sequences with other padding on the left, or another pattern, have other tiles: they are
    computed one kind after the other. So are heads with patterns of their own.
    """
    require_fitting(q, k, v, mask, bias)
    batch, keep = q.shape[0], mask.keep
    k, v = one_for_each_query_head(k, q), one_for_each_query_head(v, q)  # (B, H, K, D)
    firsts = [0] * batch if keep is None else (-first_kept(keep)).tolist()
    rows = mask.pattern.by_row(batch)
    kinds = list(zip(rows * (batch // len(rows)), firsts, strict=True))
    if len(set(kinds)) == 1:
        return _by_head(q, k, v, *kinds[0], keep, bias, dropout)
    bias = None if bias is None else bias.expand(*q.shape[:3], k.shape[-2])
    y = torch.zeros_like(q)
    for kind in dict.fromkeys(kinds):
        own = [row for row, each in enumerate(kinds) if each == kind]
        some_keep, some_bias = (None if x is None else x[own] for x in (keep, bias))
        y[own] = _by_head(q[own], k[own], v[own], *kind, some_keep, some_bias, dropout)
    return y  # (B, H, Q, D)


@cache
def never_compiled(kernel: Kernel) -> Kernel:
    """The kernel, left alone by torch.compile. No decorator: it takes a second to load."""
    plain: Kernel = torch.compiler.disable(kernel)
    return plain


def _by_head(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    first: int,
    keep: Tensor | None,
    bias: Tensor | None,
    dropout: float,
) -> Tensor:
    """Sequences alike in pattern and first position, one kind of head after the other."""
    heads = pattern.by_head(q.shape[1])
    if len(set(heads)) == 1:
        return _by_tiles(q, k, v, heads[0], first, keep, bias, dropout)
    bias = None if bias is None else bias.expand(*q.shape[:3], k.shape[-2])
    y = torch.zeros_like(q)
    for kind in dict.fromkeys(heads):
        own = [head for head, each in enumerate(heads) if each == kind]
        some = None if bias is None else bias[:, own]
        y[:, own] = _by_tiles(q[:, own], k[:, own], v[:, own], kind, first, keep, some, dropout)
    return y


def _by_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    first: int,
    keep: Tensor | None,
    bias: Tensor | None,
    dropout: float,
) -> Tensor:
    queries, keys = q.shape[-2], k.shape[-2]
    if pattern.most_keys(keys) >= keys:
        return fused(q, k, v, Mask(pattern, keep), bias, dropout)
    if q.is_cuda and pattern.pointwise and bias is None and not dropout:
        return flex(q, k, v, pattern, first, keep)
    return tilewise.attend(
        q, k, v, tiles(pattern, first, queries, keys, q.device), keep, bias, dropout
    )


def require_fitting(q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None) -> None:
    """Refuse shapes that would fail somewhere inside, or broadcast to what nobody meant."""
    require_shape("q", q, ("batch", "heads", "queries", "width"), "pass q[None] for one sequence")
    batch, heads, queries, width = q.shape
    require_shape("k", k, (batch, "key heads", "keys", width), "pass keys made for these queries")
    require_shape("v", v, k.shape, "pass a value for each key")
    key_heads, keys = k.shape[1:3]
    if key_heads == 0 or heads % key_heads:
        raise ValueError(
            f"q has {heads} heads and k has {key_heads}, but the key heads must divide the heads: "
            f"pass as many heads of keys and values, or a divisor"
        )
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
