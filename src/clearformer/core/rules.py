"""What a pattern is: a static rule on the positions of a query and a key, and how rules compose.

A pattern is a value. It says for a query position and a key position whether the one may look
at the other, and knows nothing about batches or padding (that is `masks.Mask`). Patterns
compose: `Causal() & Local(128)` looks back at most 127 places, `Local(8) | Strided(8)` is the
strided pattern of the Sparse Transformer. The patterns themselves are in `patterns.py`.

A sparse pattern also says where to look for what it allows (`label`, `candidates`, `parts`), so
that `tiles.py` can find its blocks without asking about every pair.

Axes: Q queries, K keys, T tokens.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Pattern:
    """Base of all patterns: `allows` is the rule, everything else follows from it."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """True where the query position may look at the key position; broadcasts."""
        raise NotImplementedError

    def table(self, queries: int, keys: int, device: torch.device | str | None = None) -> Tensor:
        """The rule for the last `queries` of `keys` positions, as a (Q, K) table of booleans.

        Suffix alignment, once and for all: queries are the *last* positions, so training,
        cached decoding, chunks and memories all follow one rule.
        """
        key = torch.arange(keys, device=device)  # (K,)
        query = torch.arange(keys - queries, keys, device=device)  # (Q,)
        return self.allows(query[:, None], key[None, :])  # (Q, K)

    def __and__(self, other: "Pattern") -> "Pattern":
        return Both(self, other)

    def __or__(self, other: "Pattern") -> "Pattern":
        return Either(self, other)

    def __sub__(self, other: "Pattern") -> "Pattern":
        return Without(self, other)

    def by_head(self, heads: int) -> "tuple[Pattern, ...]":
        """One pattern for all heads, or one for each."""
        return (self,)

    def by_row(self, batch: int) -> "tuple[Pattern, ...]":
        """One pattern for all sequences of a batch, or one for each."""
        return (self,)

    block = 64  # queries in a tile

    @property
    def pointwise(self) -> bool:
        """Whether `allows` is arithmetic alone, as a GPU's kernel needs it to be."""
        return True

    def most_keys(self, keys: int) -> int:
        """About how many of `keys` keys a query sees at the most: what a kernel must compute."""
        return keys

    def label(self, queries: Tensor) -> Tensor:
        """A number for each query; those with the same number see much the same keys."""
        return torch.zeros_like(queries)

    def key_label(self, keys: Tensor) -> Tensor:
        """A number for each key; those with the same number are seen together."""
        return self.label(keys)

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        """Key positions in `keys` among which are all that some of the queries see."""
        return torch.arange(keys.start, keys.stop)

    def parts(self, keys: int) -> "tuple[Part, ...]":
        """The pattern as rules without a pair in common, each with a guide to its tiles."""
        return (Part(self, self),)

    def count(self, length: int) -> int:
        """How many (query, key) pairs are allowed in a sequence of `length` positions."""
        key = torch.arange(length)
        # A few rows at a time: the whole table of a long sequence would not fit in memory.
        rows = torch.arange(length).split(max(1, 2**24 // max(length, 1)))
        return sum(int(self.allows(query[:, None], key[None, :]).sum()) for query in rows)

    def density(self, length: int, cells: int) -> Tensor:
        """The table of a long sequence seen from afar: the share allowed in each of cells²."""
        bounds = torch.linspace(0, length, cells + 1).round().long()
        inside = torch.bucketize(torch.arange(length), bounds[1:], right=True)  # cell of each place
        key = torch.arange(length)
        rows = []
        for query in key.split((bounds[1:] - bounds[:-1]).tolist()):
            share = self.allows(query[:, None], key[None, :]).float().mean(dim=0)  # (K,)
            rows.append(torch.zeros(cells).index_add(0, inside, share))
        return torch.stack(rows) / torch.bincount(inside, minlength=cells)  # (cells, cells)

    def draw(self, length: int, cells: int = 32) -> str:
        """The table as text: a row for each query, a filled place for each key it may see.

        Past `cells` positions a place stands for several, the fuller the more of them are seen.
        """
        shades = "·░▒▓■"
        table = self.density(length, min(length, cells))
        # Rounded up: a single edge must not vanish.
        return "\n".join(
            " ".join(shades[math.ceil(4 * share)] for share in row) for row in table.tolist()
        )


@dataclass(frozen=True)
class Pair(Pattern):
    """Base of what is made from two patterns."""

    first: Pattern
    second: Pattern

    def by_head(self, heads: int) -> tuple[Pattern, ...]:
        return self._each(self.first.by_head(heads), self.second.by_head(heads))

    def by_row(self, batch: int) -> tuple[Pattern, ...]:
        return self._each(self.first.by_row(batch), self.second.by_row(batch))

    @property
    def pointwise(self) -> bool:
        return self.first.pointwise and self.second.pointwise

    def _each(self, first: tuple[Pattern, ...], second: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
        count = max(len(first), len(second))
        pairs = zip(first * (count // len(first)), second * (count // len(second)), strict=True)
        return tuple(type(self)(*pair) for pair in pairs)


@dataclass(frozen=True)
class Both(Pair):
    """What two patterns both allow; written `first & second`."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.first.allows(query, key) & self.second.allows(query, key)

    def most_keys(self, keys: int) -> int:
        return min(self.first.most_keys(keys), self.second.most_keys(keys))

    def parts(self, keys: int) -> "tuple[Part, ...]":
        sparse, other = self.first, self.second
        if other.most_keys(keys) < sparse.most_keys(keys):
            sparse, other = other, sparse
        return tuple(Part(part.rule & other, part.guide) for part in sparse.parts(keys))


@dataclass(frozen=True)
class Either(Pair):
    """What at least one of two patterns allows; written `first | second`."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.first.allows(query, key) | self.second.allows(query, key)

    def most_keys(self, keys: int) -> int:
        return min(keys, self.first.most_keys(keys) + self.second.most_keys(keys))

    def parts(self, keys: int) -> "tuple[Part, ...]":
        rest = (Part(part.rule - self.first, part.guide) for part in self.second.parts(keys))
        return (*self.first.parts(keys), *rest)


@dataclass(frozen=True)
class Without(Pair):
    """What the first pattern allows and the second does not; written `first - second`."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.first.allows(query, key) & ~self.second.allows(query, key)

    def most_keys(self, keys: int) -> int:
        return self.first.most_keys(keys)

    def parts(self, keys: int) -> "tuple[Part, ...]":
        return tuple(Part(part.rule - self.second, part.guide) for part in self.first.parts(keys))


class Part(NamedTuple):
    """A rule, and the pattern that contains it and knows where its tiles are."""

    rule: Pattern
    guide: Pattern
