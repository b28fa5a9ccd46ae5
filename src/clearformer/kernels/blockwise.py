"""The kernel for sparse patterns: attention over the tiles that a pattern touches.

Axes: B batch, H query heads, Q queries, K keys, D head width.
"""

from functools import cache

import torch
from torch import Tensor

from clearformer.core.kernels import Kernel, one_for_each_query_head, require_fitting
from clearformer.core.masks import Mask, first_real_token
from clearformer.core.patterns import Pattern
from clearformer.kernels.fast import fast
from clearformer.kernels.flex import flex
from clearformer.kernels.guides import guide
from clearformer.kernels.tile_attention import attend
from clearformer.kernels.tiles import tiles


def blockwise(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float
) -> Tensor:
    """Only the tiles that a sparse pattern touches; a dense pattern is left to `fast`.

    Sequences with other padding on the left, or another pattern, have other tiles: they are
    computed one kind after the other. So are heads with patterns of their own.
    """
    require_fitting(q, k, v, mask, bias)
    batch, attention_mask = q.shape[0], mask.attention_mask
    k, v = one_for_each_query_head(k, q), one_for_each_query_head(v, q)  # (B, H, K, D)
    firsts = [0] * batch if attention_mask is None else (-first_real_token(attention_mask)).tolist()
    rows = mask.pattern.by_row(batch)
    kinds = list(zip(rows * (batch // len(rows)), firsts, strict=True))
    if len(set(kinds)) == 1:
        return _by_head(q, k, v, *kinds[0], attention_mask, bias, dropout)
    bias = None if bias is None else bias.expand(*q.shape[:3], k.shape[-2])
    y = torch.zeros_like(q)
    for kind in dict.fromkeys(kinds):
        own = [row for row, each in enumerate(kinds) if each == kind]
        some_attention_mask, some_bias = (
            None if x is None else x[own] for x in (attention_mask, bias)
        )
        y[own] = _by_head(q[own], k[own], v[own], *kind, some_attention_mask, some_bias, dropout)
    return y  # (B, H, Q, D)


def _by_head(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    first: int,
    attention_mask: Tensor | None,
    bias: Tensor | None,
    dropout: float,
) -> Tensor:
    """Sequences alike in pattern and first position, one kind of head after the other."""
    heads = pattern.by_head(q.shape[1])
    if len(set(heads)) == 1:
        return _by_tiles(q, k, v, heads[0], first, attention_mask, bias, dropout)
    bias = None if bias is None else bias.expand(*q.shape[:3], k.shape[-2])
    y = torch.zeros_like(q)
    for kind in dict.fromkeys(heads):
        own = [head for head, each in enumerate(heads) if each == kind]
        some = None if bias is None else bias[:, own]
        y[:, own] = _by_tiles(
            q[:, own], k[:, own], v[:, own], kind, first, attention_mask, some, dropout
        )
    return y


def _by_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    first: int,
    attention_mask: Tensor | None,
    bias: Tensor | None,
    dropout: float,
) -> Tensor:
    queries, keys = q.shape[-2], k.shape[-2]
    where = guide(pattern)
    if where.max_keys(keys) >= keys:
        return fast(q, k, v, Mask(pattern, attention_mask), bias, dropout)
    if q.is_cuda and where.pointwise and bias is None and not dropout:
        return flex(q, k, v, pattern, first, attention_mask)
    return attend(
        q, k, v, tiles(pattern, first, queries, keys, q.device), attention_mask, bias, dropout
    )


@cache
def never_compiled(kernel: Kernel) -> Kernel:
    """The kernel, left alone by torch.compile. No decorator: it takes a second to load."""
    plain: Kernel = torch.compiler.disable(kernel)
    return plain
