"""Blockwise kernel for sparse patterns: attention over the tiles that contain allowed pairs.

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
    """Attention over tiles for a sparse pattern; a dense pattern is computed by `fast`.

    Tiles depend on the left padding and the pattern, so sequences are computed in groups that share
    both. So are heads with different patterns.
    """
    require_fitting(q, k, v, mask, bias)
    batch, attention_mask = q.shape[0], mask.attention_mask
    k, v = one_for_each_query_head(k, q), one_for_each_query_head(v, q)  # (B, H, K, D)
    firsts = [0] * batch if attention_mask is None else (-first_real_token(attention_mask)).tolist()
    patterns = mask.pattern.by_row(batch)
    kinds = list(zip(patterns * (batch // len(patterns)), firsts, strict=True))
    if len(set(kinds)) == 1:
        return _by_head(q, k, v, *kinds[0], attention_mask, bias, dropout)
    bias = None if bias is None else bias.expand(*q.shape[:3], k.shape[-2])
    y = torch.zeros_like(q)
    for kind in dict.fromkeys(kinds):
        rows = [row for row, each in enumerate(kinds) if each == kind]
        some_attention_mask, some_bias = (
            None if x is None else x[rows] for x in (attention_mask, bias)
        )
        y[rows] = _by_head(
            q[rows], k[rows], v[rows], *kind, some_attention_mask, some_bias, dropout
        )
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
    """Sequences with the same pattern and first position, in groups of heads with one pattern."""
    heads = pattern.by_head(q.shape[1])
    if len(set(heads)) == 1:
        return _by_tiles(q, k, v, heads[0], first, attention_mask, bias, dropout)
    bias = None if bias is None else bias.expand(*q.shape[:3], k.shape[-2])
    y = torch.zeros_like(q)
    for kind in dict.fromkeys(heads):
        group = [head for head, each in enumerate(heads) if each == kind]
        bias_of_kind = None if bias is None else bias[:, group]
        y[:, group] = _by_tiles(
            q[:, group],
            k[:, group],
            v[:, group],
            kind,
            first,
            attention_mask,
            bias_of_kind,
            dropout,
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
    """The kernel, excluded from torch.compile; lazily, since the compiler is slow to load."""
    plain: Kernel = torch.compiler.disable(kernel)
    return plain
