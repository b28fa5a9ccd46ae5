"""Masks: a pattern and the padding of a batch.

Axes: B batch, H heads, Q queries, K keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.core.basic import require_shape
from clearformer.core.patterns import Causal, Full, Pattern


@dataclass(frozen=True)
class Mask:
    """A pattern and this batch's padding: `attention_mask` (B, K), True = a real token."""

    pattern: Pattern = Full()
    attention_mask: Tensor | None = None

    def hides_nothing(self, queries: int) -> bool:
        """Whether no pair is forbidden, so that a kernel need not look at the table."""
        # A single query is the last position (suffix alignment): causality hides nothing from it.
        # The class itself is compared: a subclass may have another rule.
        kind = type(self.pattern)
        return self.attention_mask is None and (kind is Full or (kind is Causal and queries == 1))

    def is_triangle(self, queries: int, keys: int) -> bool:
        """Whether this is exactly torch's `is_causal`, which aligns as we do only when Q = K."""
        return self.attention_mask is None and type(self.pattern) is Causal and queries == keys

    def table(self, q: Tensor, k: Tensor) -> Tensor:
        """True where query may look at key, broadcasting to (B, H, Q, K)."""
        wanted = ("batch", "heads", "queries", "width")
        require_shape("q", q, wanted, "pass q[None] for one sequence")
        (batch, heads, queries), keys = q.shape[:3], k.shape[-2]
        self.require_fitting(batch, queries, keys)
        real = None if self.attention_mask is None else self.attention_mask[:, None, None, :]
        if type(self.pattern) is Full:
            # Needs no positions: queries of another sequence have none among the keys.
            every = torch.ones(queries, keys, dtype=torch.bool, device=q.device)
            return every if real is None else real  # (Q, K) or (B, 1, 1, K)
        places = torch.arange(keys, device=q.device)  # (K,)
        if self.attention_mask is not None:
            # Positions count from the first real token, or padding on the left would move a
            # pattern that has a grid, and change what real tokens see.
            places = places - first_real_token(self.attention_mask)[:, None]  # (B, K)
        rows = self.pattern.by_row(batch)
        if len(rows) == 1:
            seen = _each_head(rows[0], heads, queries, places)  # (B or none, H or 1, Q, K)
        else:
            own = zip(rows, places.expand(batch, keys), strict=True)
            seen = torch.stack([_each_head(row, heads, queries, place) for row, place in own])
        return seen if real is None else real & seen

    def require_fitting(self, batch: int, queries: int, keys: int) -> None:
        """Refuse a batch of another size, and queries that have no place among the keys."""
        require_attention_mask(self.attention_mask, batch, keys)
        if queries > keys and type(self.pattern) is not Full:
            raise ValueError(
                f"there are {queries} queries and {keys} keys, but under {self.pattern} the "
                f"queries are the last of the keys: use Full() for keys of another sequence"
            )


def require_attention_mask(attention_mask: Tensor | None, batch: int, keys: int) -> None:
    """Padding must be booleans, a row for each sequence and a place for each key."""
    if attention_mask is None:
        return
    if attention_mask.dtype != torch.bool:
        raise ValueError(
            f"attention_mask has dtype {attention_mask.dtype}, but it must be torch.bool "
            f"(True = a real token): use attention_mask=(tokens != padding)"
        )
    if attention_mask.shape != (batch, keys):
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}, but there are {batch} "
            f"sequences of {keys} keys: it must be ({batch}, {keys}), cached tokens included"
        )


def first_real_token(attention_mask: Tensor) -> Tensor:
    """Index of the first real token of each row (B,), which has position 0."""
    return attention_mask.int().argmax(dim=1)


def _each_head(pattern: Pattern, heads: int, queries: int, places: Tensor) -> Tensor:
    """The rule for positions (..., K), of which the queries are the last: (..., H or 1, Q, K)."""
    start = places.shape[-1] - queries
    query, key = places[..., start:, None], places[..., None, :]  # (..., Q, 1), (..., 1, K)
    rules = pattern.by_head(heads)
    if len(rules) == 1:
        return rules[0].allows(query, key).unsqueeze(-3)
    return torch.stack([rule.allows(query, key) for rule in rules], dim=-3)
