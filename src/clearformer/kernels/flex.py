"""Sparse patterns through torch's flex_attention, for a GPU.

flex_attention skips blocks of 128 queries and keys without allowed pairs. A strided pattern has
allowed pairs in every block, so each part of a pattern sorts queries and keys by the labels of its
guide, and the softmax is combined from the parts by their log-sum-exps, as in `tile_attention.py`.

Not tested on a GPU. On a CPU its values are tested, without torch.compile; flex_attention has no
backward pass there.

Axes: B batch, H heads, Q queries, K keys, D head width.
"""

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from clearformer.core.patterns import Pattern
from clearformer.kernels.guides import guide

Sees = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def flex(
    q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, first: int, attention_mask: Tensor | None
) -> Tensor:
    """softmax(q k^T / sqrt(D)) v where `pattern` allows; positions begin at `first` (eq. 8)."""
    # Imported late: it loads torch's compiler, which takes a second.
    from torch.nn.attention.flex_attention import create_block_mask

    queries, keys = q.shape[-2], k.shape[-2]
    positions = torch.arange(first, first + keys, device=q.device)  # (K,)
    outputs, sums = [], []
    for part in guide(pattern).parts(keys):
        query_positions = positions[keys - queries :]  # (Q,)
        query_order = part.guide.query_label(query_positions).argsort(stable=True)  # (Q,)
        key_order = part.guide.key_label(positions).argsort(stable=True)  # (K,)
        query, key = query_positions[query_order], positions[key_order]
        sees = _mask(
            part.rule, query, key, None if attention_mask is None else attention_mask[:, key_order]
        )
        blocks = create_block_mask(
            sees,
            None if attention_mask is None else q.shape[0],
            None,
            queries,
            keys,
            device=str(q.device),
        )
        y, total = _attention(q.is_cuda)(
            q[:, :, query_order],
            k[:, :, key_order],
            v[:, :, key_order],
            block_mask=blocks,
            return_lse=True,
        )  # (B, H, Q, D), (B, H, Q)
        inverse = query_order.argsort()
        outputs.append(y[:, :, inverse])
        sums.append(total[:, :, inverse])
    log_sums = torch.stack(sums)  # (parts, B, H, Q)
    # A query without keys has outputs of zero, so that any shares are right; those of -inf alone
    # would be NaN, also in the backward pass.
    share = log_sums.masked_fill((log_sums == -math.inf).all(dim=0), 0.0).softmax(dim=0)
    return (share[..., None].to(q.dtype) * torch.stack(outputs)).sum(dim=0)  # (B, H, Q, D)


@cache
def _attention(compiled: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """flex_attention; on a GPU compiled, since otherwise it computes all scores."""
    from torch.nn.attention.flex_attention import flex_attention

    run: Callable[..., tuple[Tensor, Tensor]] = flex_attention
    return torch.compile(run) if compiled else run


def _mask(rule: Pattern, query: Tensor, key: Tensor, attention_mask: Tensor | None) -> Sees:
    def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        allowed = rule.allows(query[i], key[j])
        return allowed if attention_mask is None else allowed & attention_mask[b, j]

    return sees
