"""How scores become outputs: softmax(q k^T / sqrt(D) + bias) v, three times.

`loop` is the equations executed, `explicit` the matrix form, `fused` the fast one (the
default). They are the same function, tested equal in value and in gradient, in training mode
too. A kernel is `kernel(q, k, v, mask, bias, dropout)`; pass another one to `Attention` to
change how scores become outputs.

Two promises that every kernel keeps: a query that may see nothing yields zeros, never NaN;
dropout falls on the weights.

Axes: B batch, H query heads, G key heads (G divides H), Q queries, K keys, D head width.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.core.patterns import Causal, Full, Pattern


@dataclass(frozen=True)
class Mask:
    """A static pattern and this batch's padding: `keep` (B, K) is True where one may look."""

    pattern: Pattern = Full()
    keep: Tensor | None = None

    def __post_init__(self) -> None:
        if self.keep is None:
            return
        if self.keep.dtype != torch.bool:
            raise ValueError(
                f"keep has dtype {self.keep.dtype}, but it must be torch.bool "
                f"(True = may look): use keep=(tokens != padding)"
            )
        if self.keep.dim() != 2:
            raise ValueError(
                f"keep has shape {tuple(self.keep.shape)}, but it must be (batch, keys)"
            )

    def hides_nothing(self, queries: int) -> bool:
        """Whether no pair is forbidden, so that a kernel need not look at the table."""
        # A single query is the last position (suffix alignment): causality hides nothing from it.
        open_to_all = isinstance(self.pattern, Full) or (
            isinstance(self.pattern, Causal) and queries == 1
        )
        return self.keep is None and open_to_all

    def is_triangle(self, queries: int, keys: int) -> bool:
        """Whether this is exactly torch's `is_causal`, which aligns as we do only when Q = K."""
        return self.keep is None and isinstance(self.pattern, Causal) and queries == keys

    def table(self, q: Tensor, k: Tensor) -> Tensor:
        """True where query may look at key, broadcasting to (B, H, Q, K)."""
        batch, queries, keys = q.shape[0], q.shape[-2], k.shape[-2]
        if self.keep is None:
            return self.pattern.table(queries, keys, q.device)  # (Q, K)
        if self.keep.shape != (batch, keys):
            raise ValueError(
                f"keep has shape {tuple(self.keep.shape)}, but there are {batch} sequences "
                f"of {keys} keys: it must be ({batch}, {keys}), places of the past included"
            )
        keep = self.keep[:, None, None, :]  # (B, 1, 1, K)
        if isinstance(self.pattern, Full):
            return keep
        # Positions count from the first real token, or padding on the left would move a
        # pattern that has a grid, and change what real tokens see.
        key = torch.arange(keys, device=q.device) - first_kept(self.keep)[:, None]  # (B, K)
        query = key[:, keys - queries :]  # (B, Q)
        seen = self.pattern.allows(query[:, :, None], key[:, None, :])  # (B, Q, K)
        return keep & seen[:, None]  # (B, 1, Q, K)


def first_kept(keep: Tensor) -> Tensor:
    """Index of the first real token of each row (B,): position 0, however much padding is left."""
    return keep.int().argmax(dim=1)


Kernel = Callable[[Tensor, Tensor, Tensor, Mask, Tensor | None, float], Tensor]


def weights(q: Tensor, k: Tensor, mask: Mask, bias: Tensor | None) -> Tensor:
    """The attention weights: eq. 9, eq. 13 and eq. 7. This function *is* the formula."""
    k = one_for_each_query_head(k, q)  # (B, H, K, D)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, Q, K)  eq. 9
    if bias is not None:
        scores = scores + bias
    if mask.hides_nothing(q.shape[-2]):
        return scores.softmax(dim=-1)  # eq. 7
    hidden = ~mask.table(q, k)
    # The lowest number and not -inf: a row of nothing but -inf has a softmax of NaN. The second
    # fill makes the hidden weights exactly zero, also in such a row.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(hidden, lowest).softmax(dim=-1).masked_fill(hidden, 0.0)


def loop(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float
) -> Tensor:
    """One query at a time, one key at a time. Slow, and obviously right."""
    (batch, heads, queries, head_width), keys = q.shape, k.shape[-2]
    k, v = one_for_each_query_head(k, q), one_for_each_query_head(v, q)
    whole = (batch, heads, queries, keys)
    seen = mask.table(q, k).expand(whole).tolist()
    bias = (
        torch.zeros(whole, dtype=q.dtype, device=q.device) if bias is None else bias.expand(whole)
    )
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
    table = F.dropout(weights(q, k, mask, bias), dropout)  # (B, H, Q, K)
    return table @ one_for_each_query_head(v, q)  # (B, H, Q, D)  eq. 8


def fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float
) -> Tensor:
    """torch's scaled dot-product attention: the same, without keeping the t x t table."""
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


def one_for_each_query_head(k: Tensor, q: Tensor) -> Tensor:
    """With grouped queries (G < H) neighbouring query heads share a key head."""
    heads, key_heads = q.shape[1], k.shape[1]
    return k if heads == key_heads else k.repeat_interleave(heads // key_heads, dim=1)
