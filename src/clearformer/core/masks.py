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
    """A pattern and this batch's padding: `keep` (B, K) is False where a key is padding."""

    pattern: Pattern = Full()
    keep: Tensor | None = None

    def __post_init__(self) -> None:
        if self.keep is not None:
            _require_boolean(self.keep)
            advice = "give each sequence a row, and each key a place"
            require_shape("keep", self.keep, ("batch", "keys"), advice)

    def hides_nothing(self, queries: int) -> bool:
        """Whether no pair is forbidden, so that a kernel need not look at the table."""
        # A single query is the last position (suffix alignment): causality hides nothing from it.
        # The very classes: a subclass may have another rule.
        kind = type(self.pattern)
        return self.keep is None and (kind is Full or (kind is Causal and queries == 1))

    def is_triangle(self, queries: int, keys: int) -> bool:
        """Whether this is exactly torch's `is_causal`, which aligns as we do only when Q = K."""
        return self.keep is None and type(self.pattern) is Causal and queries == keys

    def table(self, q: Tensor, k: Tensor) -> Tensor:
        """True where query may look at key, broadcasting to (B, H, Q, K)."""
        wanted = ("batch", "heads", "queries", "width")
        require_shape("q", q, wanted, "pass q[None] for one sequence")
        (batch, heads, queries), keys = q.shape[:3], k.shape[-2]
        self.require_fitting(batch, queries, keys)
        keep = None if self.keep is None else self.keep[:, None, None, :]  # (B, 1, 1, K)
        if type(self.pattern) is Full:
            # Needs no places, which queries of another sequence have not: there may be more
            # of them than keys.
            every = torch.ones(queries, keys, dtype=torch.bool, device=q.device)
            return every if keep is None else keep
        places = torch.arange(keys, device=q.device)  # (K,)
        if self.keep is not None:
            # Positions count from the first real token, or padding on the left would move a
            # pattern that has a grid, and change what real tokens see.
            places = places - first_kept(self.keep)[:, None]  # (B, K)
        rows = self.pattern.by_row(batch)
        if len(rows) == 1:
            seen = _each_head(rows[0], heads, queries, places)  # (B or none, H or 1, Q, K)
        else:
            own = zip(rows, places.expand(batch, keys), strict=True)
            seen = torch.stack([_each_head(row, heads, queries, place) for row, place in own])
        return seen if keep is None else keep & seen

    def require_fitting(self, batch: int, queries: int, keys: int) -> None:
        """Refuse a batch of another size, and queries that have no place among the keys."""
        require_keep(self.keep, batch, keys)
        if queries > keys and type(self.pattern) is not Full:
            raise ValueError(
                f"there are {queries} queries and {keys} keys, but under {self.pattern} the "
                f"queries are the last of the keys: use Full() for keys of another sequence"
            )


def require_keep(keep: Tensor | None, batch: int, keys: int) -> None:
    """Padding must be booleans, a row for each sequence and a place for each key."""
    if keep is None:
        return
    _require_boolean(keep)
    if keep.shape != (batch, keys):
        raise ValueError(
            f"keep has shape {tuple(keep.shape)}, but there are {batch} sequences "
            f"of {keys} keys: it must be ({batch}, {keys}), places of the past included"
        )


def _require_boolean(keep: Tensor) -> None:
    if keep.dtype != torch.bool:
        raise ValueError(
            f"keep has dtype {keep.dtype}, but it must be torch.bool "
            f"(True = may look): use keep=(tokens != padding)"
        )


def first_kept(keep: Tensor) -> Tensor:
    """Index of the first real token of each row (B,): position 0, however much padding is left."""
    return keep.int().argmax(dim=1)


def last_kept(keep: Tensor) -> Tensor:
    """Index of the last real token of each row (B,); the last of all if there is none."""
    return keep.shape[1] - 1 - keep.flip(1).int().argmax(dim=1)


def _each_head(pattern: Pattern, heads: int, queries: int, places: Tensor) -> Tensor:
    """The rule for positions (..., K), of which the queries are the last: (..., H or 1, Q, K)."""
    start = places.shape[-1] - queries
    query, key = places[..., start:, None], places[..., None, :]  # (..., Q, 1), (..., 1, K)
    rules = pattern.by_head(heads)
    if len(rules) == 1:
        return rules[0].allows(query, key).unsqueeze(-3)
    return torch.stack([rule.allows(query, key) for rule in rules], dim=-3)
