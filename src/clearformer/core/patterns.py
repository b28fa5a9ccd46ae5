"""Attention patterns: which query positions may look at which key positions.

A pattern is a frozen value with one rule, `allows(query, key)`; yours is a dataclass derived from
`Pattern`. Patterns compose: `Causal() & Local(128)` looks back at most 127 positions,
`Local(8) | Strided(8)` is the strided pattern of the Sparse Transformer, `Full() - Local(1)` sees
everyone but itself. A config holds these values, so torch is imported only to make a tensor.

Axes: B batch, H heads, Q queries, K keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Pattern:
    """Base of all patterns: `allows` is the rule, everything else follows from it."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """True where the query position may look at the key position; broadcasts."""
        raise NotImplementedError

    def __and__(self, other: Pattern) -> Both:
        return Both(self, other)

    def __or__(self, other: Pattern) -> Either:
        return Either(self, other)

    def __sub__(self, other: Pattern) -> Without:
        return Without(self, other)

    def by_head(self, heads: int) -> tuple[Pattern, ...]:
        """One pattern for all heads, or one for each."""
        return (self,)

    def by_row(self, batch: int) -> tuple[Pattern, ...]:
        """One pattern for all sequences of a batch, or one for each."""
        return (self,)

    @property
    def is_causal(self) -> bool:
        """Whether no query sees a later key, as far as the form of the pattern tells."""
        return False

    def table(self, queries: int, keys: int, device: torch.device | str | None = None) -> Tensor:
        """The rule for the last `queries` of `keys` positions, as a (Q, K) table of booleans.

        Suffix alignment, once and for all: queries are the *last* positions, so training,
        cached decoding, chunks and memories all follow one rule.
        """
        import torch

        key = torch.arange(keys, device=device)  # (K,)
        return self.allows(key[keys - queries :, None], key[None, :])  # (Q, K)

    def density(self, length: int, cells: int) -> Tensor:
        """The table of a long sequence, coarsened: the share allowed in each of cells² cells."""
        import torch

        bounds = torch.linspace(0, length, cells + 1).round().long()
        key = torch.arange(length)
        inside = torch.bucketize(key, bounds[1:], right=True)  # the cell of each position
        rows = []
        for query in key.split((bounds[1:] - bounds[:-1]).tolist()):
            share = self.allows(query[:, None], key[None, :]).float().mean(dim=0)  # (K,)
            rows.append(torch.zeros(cells).index_add(0, inside, share))
        return torch.stack(rows) / torch.bincount(inside, minlength=cells)  # (cells, cells)

    def draw(self, length: int, cells: int = 32) -> str:
        """The table as text: a row for each query, a filled square for each key it may see.

        Past `cells` positions a square stands for several, the fuller the more of them are seen.
        """
        table = self.density(length, min(length, cells)).tolist()
        # Rounded up: a single edge must not vanish.
        return "\n".join(" ".join("·░▒▓■"[math.ceil(4 * share)] for share in row) for row in table)


@dataclass(frozen=True)
class _Pair(Pattern):
    """Base of what is made from two patterns."""

    first: Pattern
    second: Pattern

    def by_head(self, heads: int) -> tuple[Pattern, ...]:
        return self._each(self.first.by_head(heads), self.second.by_head(heads))

    def by_row(self, batch: int) -> tuple[Pattern, ...]:
        return self._each(self.first.by_row(batch), self.second.by_row(batch))

    def _each(self, first: tuple[Pattern, ...], second: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
        count = max(len(first), len(second))
        pairs = zip(first * (count // len(first)), second * (count // len(second)), strict=True)
        return tuple(type(self)(*pair) for pair in pairs)


@dataclass(frozen=True)
class Both(_Pair):
    """What two patterns both allow; written `first & second`."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.first.allows(query, key) & self.second.allows(query, key)

    @property
    def is_causal(self) -> bool:
        return self.first.is_causal or self.second.is_causal


@dataclass(frozen=True)
class Either(_Pair):
    """What at least one of two patterns allows; written `first | second`."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.first.allows(query, key) | self.second.allows(query, key)

    @property
    def is_causal(self) -> bool:
        return self.first.is_causal and self.second.is_causal


@dataclass(frozen=True)
class Without(_Pair):
    """What the first pattern allows and the second does not; written `first - second`."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.first.allows(query, key) & ~self.second.allows(query, key)


class SizedPattern(Pattern):
    """Base of patterns whose fields are sizes: whole numbers, at least 1."""

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            require(self, name, isinstance(size, int), "a whole number")
            require(self, name, size >= 1, "at least 1")


@dataclass(frozen=True)
class Full(Pattern):
    """Every position sees every position."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query == query) & (key == key)


@dataclass(frozen=True)
class Causal(Pattern):
    """Only itself and earlier positions (eq. 13), as generation requires."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    @property
    def is_causal(self) -> bool:
        return True


@dataclass(frozen=True)
class Local(SizedPattern):
    """Fewer than `window` positions away, on either side; `Local(1)` sees only itself."""

    window: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return abs(query - key) < self.window


@dataclass(frozen=True)
class Strided(SizedPattern):
    """A whole number of strides away: the columns of a picture `stride` pixels wide (eq. 24)."""

    stride: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key) % self.stride == 0


@dataclass(frozen=True)
class Fixed(SizedPattern):
    """The own block of `stride` positions, and the last `summary` of every block (eq. 25).

    The summary positions collect their block for all later positions.
    """

    stride: int
    summary: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "summary", self.summary <= self.stride, f"at most the stride, {self.stride}")

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        own_block = query // self.stride == key // self.stride
        return own_block | (key % self.stride >= self.stride - self.summary)


def require(owner: object, name: str, holds: bool, wanted: str) -> None:
    """Refuse a field of `owner` that is out of range."""
    if not holds:
        value = getattr(owner, name)
        raise ValueError(
            f"{type(owner).__name__}: {name} is {value!r:.200}, but it must be {wanted}"
        )
