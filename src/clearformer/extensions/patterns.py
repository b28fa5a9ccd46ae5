"""Patterns for graphs, pictures and captions, and patterns that differ by head or by sequence.

torch is imported inside the functions, so that reading a config does not load it.

Axes: B batch, H heads, Q queries, K keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING

from clearformer.core.patterns import Pattern, SizedPattern, require

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Row(SizedPattern):
    """The same row of a picture `width` pixels wide, whose columns are `Strided(width)`."""

    width: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return query // self.width == key // self.width


@dataclass(frozen=True)
class Summary(SizedPattern):
    """The last `places` of every block of `stride` positions, for every query."""

    stride: int
    places: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query == query) & (key % self.stride >= self.stride - self.places)


@dataclass(frozen=True)
class Graph(Pattern):
    """The listed (query, key) edges between `nodes` nodes.

    Edges are directed, and a node sees itself only by an edge to itself: add `| Local(1)`.
    """

    edges: tuple[tuple[int, int], ...]
    nodes: int

    def __post_init__(self) -> None:
        require(self, "nodes", self.nodes >= 1, "at least 1")
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


def between(positions: Tensor, bounds: tuple[int, int | None]) -> Tensor:
    """True from the first bound on, up to the second, or to the end if that is None."""
    start, stop = bounds
    after = positions >= start
    return after if stop is None else after & (positions < stop)


@dataclass(frozen=True)
class Shifted(Pattern):
    """A pattern whose positions count from `by`: a picture that begins after its caption."""

    pattern: Pattern
    by: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.pattern.allows(query - self.by, key - self.by)


@dataclass(frozen=True)
class _Several(Pattern):
    """Base of patterns by head or sequence; their common table is the union."""

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
    """A pattern for each head; fewer patterns than heads are repeated."""

    def by_head(self, heads: int) -> tuple[Pattern, ...]:
        return tuple(self.patterns[head % len(self.patterns)] for head in range(heads))


@dataclass(frozen=True)
class Each(_Several):
    """A pattern for each sequence of a batch, such as its graph."""

    def by_row(self, batch: int) -> tuple[Pattern, ...]:
        if len(self.patterns) != batch:
            raise ValueError(
                f"Each: there are {len(self.patterns)} patterns for {batch} sequences: there "
                f"must be one for each"
            )
        return self.patterns
