"""Attention patterns: which query positions may look at which key positions.

A pattern is a frozen value with one rule, `allows(query, key)`. It knows nothing about batches or
padding (that is `masks.Mask`). Patterns compose: `Causal() & Local(128)` looks back at most 127
positions, `Local(8) | Strided(8)` is the strided pattern of the Sparse Transformer,
`Full() - Local(1)` sees everyone but itself.

A config holds these same values, so torch is imported only where a tensor is made. Your own
pattern is a frozen dataclass derived from `Pattern` with a rule of its own.

Axes: B batch, H heads, Q queries, K keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
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

    def count(self, length: int) -> int:
        """How many (query, key) pairs are allowed in a sequence of `length` positions."""
        import torch

        key = torch.arange(length)
        # A few rows at a time: the whole table of a long sequence would not fit in memory.
        rows = key.split(max(1, 2**24 // max(length, 1)))
        return sum(int(self.allows(query[:, None], key[None, :]).sum()) for query in rows)

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


class _Sized(Pattern):
    """Base of patterns whose fields are sizes: whole numbers, at least 1."""

    def __post_init__(self) -> None:
        for name in vars(self):
            _require_positive(self, name)


@dataclass(frozen=True)
class Full(Pattern):
    """Everyone sees everyone."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query == query) & (key == key)


@dataclass(frozen=True)
class Causal(Pattern):
    """Only itself and what came before (eq. 13): what makes a generator possible."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    @property
    def is_causal(self) -> bool:
        return True


@dataclass(frozen=True)
class Local(_Sized):
    """Fewer than `window` positions away, on either side; `Local(1)` sees only itself."""

    window: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return abs(query - key) < self.window


@dataclass(frozen=True)
class Strided(_Sized):
    """A whole number of strides away: the columns of a picture `stride` pixels wide (eq. 24)."""

    stride: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key) % self.stride == 0


@dataclass(frozen=True)
class Row(_Sized):
    """The same row of a picture `width` pixels wide, whose columns are `Strided(width)`."""

    width: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return query // self.width == key // self.width


@dataclass(frozen=True)
class Summary(_Sized):
    """The last `places` of every block of `stride` positions, whoever looks."""

    stride: int
    places: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query == query) & (key % self.stride >= self.stride - self.places)


@dataclass(frozen=True)
class Fixed(Pattern):
    """The own block of `stride` positions, and the last `summary` of every block (eq. 25).

    The summary positions gather their block; everyone after it reads them.
    """

    stride: int
    summary: int

    def __post_init__(self) -> None:
        _require_positive(self, "stride")
        if not 0 < self.summary <= self.stride:
            raise ValueError(
                f"Fixed: summary is {self.summary}, but a block of stride {self.stride} "
                f"has between 1 and {self.stride} summary places"
            )

    @property
    def expanded(self) -> Either:
        return Row(self.stride) | Summary(self.stride, self.summary)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.expanded.allows(query, key)


@dataclass(frozen=True)
class Graph(Pattern):
    """Just the listed (query, key) edges between `nodes` nodes: structure as data.

    Edges are directed, and a node sees itself only if an edge says so: add `| Local(1)`.
    """

    edges: tuple[tuple[int, int], ...]
    nodes: int

    def __post_init__(self) -> None:
        _require_positive(self, "nodes")
        for edge in self.edges:
            if len(edge) != 2:
                raise ValueError(
                    f"Graph: edge {edge} has {len(edge)} nodes, but an edge is a pair: "
                    f"write (query, key)"
                )
            if not all(0 <= node < self.nodes for node in edge):
                raise ValueError(
                    f"Graph: edge {edge} leaves the nodes 0 to {self.nodes - 1}; "
                    f"number the nodes from 0 or raise nodes"
                )

    @cached_property
    def codes(self) -> Tensor:
        """Every edge as one number, query * nodes + key, in rising order."""
        import torch

        pairs = torch.tensor(self.edges, dtype=torch.long).view(-1, 2)
        return torch.unique(pairs[:, 0] * self.nodes + pairs[:, 1])

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        import torch

        # Other positions (padding on either side) belong to no edge.
        inside = (query >= 0) & (key >= 0) & (query < self.nodes) & (key < self.nodes)
        codes = self.codes.to(query.device)
        return inside & torch.isin(query * self.nodes + key, codes)


@dataclass(frozen=True)
class Region(Pattern):
    """Queries from one range of positions look at keys of another; None: to the last."""

    queries: tuple[int, int | None]
    keys: tuple[int, int | None]

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return between(query, self.queries) & between(key, self.keys)


@dataclass(frozen=True)
class Shifted(Pattern):
    """A pattern whose positions count from `by`: a picture that begins after its caption."""

    pattern: Pattern
    by: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.pattern.allows(query - self.by, key - self.by)


@dataclass(frozen=True)
class _Several(Pattern):
    """Base of patterns that differ; asked about all together, it allows what one of them does."""

    patterns: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        if not self.patterns:
            raise ValueError(f"{type(self).__name__}: it has no patterns, but it needs at least 1")

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return reduce(or_, (each.allows(query, key) for each in self.patterns))

    @property
    def is_causal(self) -> bool:
        return all(each.is_causal for each in self.patterns)


@dataclass(frozen=True)
class PerHead(_Several):
    """A pattern of its own for each head; fewer patterns than heads are repeated in turn."""

    def by_head(self, heads: int) -> tuple[Pattern, ...]:
        return tuple(self.patterns[head % len(self.patterns)] for head in range(heads))


@dataclass(frozen=True)
class Each(_Several):
    """A pattern of its own for each sequence of a batch, such as its graph."""

    def by_row(self, batch: int) -> tuple[Pattern, ...]:
        if len(self.patterns) != batch:
            raise ValueError(
                f"Each: there are {len(self.patterns)} patterns for {batch} sequences: there "
                f"must be one for each"
            )
        return self.patterns


def between(positions: Tensor, bounds: tuple[int, int | None]) -> Tensor:
    """True from the first bound on, up to the second, or to the end if that is None."""
    start, stop = bounds
    after = positions >= start
    return after if stop is None else after & (positions < stop)


def _require_positive(pattern: Pattern, field: str) -> None:
    value = getattr(pattern, field)
    if not isinstance(value, int) or value < 1:
        wanted = "at least 1" if isinstance(value, int) else "a whole number"
        raise ValueError(f"{type(pattern).__name__}: {field} is {value}, but it must be {wanted}")
