"""Guides to sparse patterns: which keys may be allowed for which queries.

A pattern only says whether a single pair is allowed. To skip the others without testing each of
them, a kernel uses the pattern's guide. A pattern without a guide, such as a user's own, is treated
as dense: correct, but not faster.

Axes: Q queries, K keys.
"""

from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from clearformer.core.patterns import (
    Both,
    Causal,
    Either,
    Fixed,
    Full,
    Local,
    Pattern,
    Strided,
    Without,
)
from clearformer.extensions.patterns import Graph, Region, Row, Shifted, Summary, between

P = TypeVar("P", bound=Pattern)


class Guide(Generic[P]):
    """The guide of a dense pattern, and the base class of all guides."""

    block = 64  # queries in a tile

    def __init__(self, pattern: P) -> None:
        self.pattern = pattern

    @property
    def pointwise(self) -> bool:
        """Whether `allows` is pure arithmetic, as a GPU kernel requires."""
        return True

    def max_keys(self, keys: int) -> int:
        """An upper bound on the keys of a query: about what a kernel must compute."""
        return keys

    def query_label(self, queries: Tensor) -> Tensor:
        """A label for each query; queries with the same label attend to similar keys."""
        return torch.zeros_like(queries)

    def key_label(self, keys: Tensor) -> Tensor:
        """A label for each key; keys with the same label belong to similar queries."""
        return self.query_label(keys)

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        """Key positions in `keys` that include all allowed keys of the queries."""
        return torch.arange(keys.start, keys.stop)

    def parts(self, keys: int) -> "tuple[Part, ...]":
        """The pattern as disjoint rules, each with a guide."""
        return (Part(self.pattern, self),)


class Part(NamedTuple):
    """A rule, and the guide of a pattern that contains it."""

    rule: Pattern
    guide: Guide[Any]


class UnknownGuide(Guide[Pattern]):
    """The guide of an unknown pattern, whose rule may read tensors."""

    pointwise = False


class LocalGuide(Guide[Local]):
    def max_keys(self, keys: int) -> int:
        return min(keys, 2 * self.pattern.window - 1)

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        window = self.pattern.window
        low, high = int(queries.min()) - window, int(queries.max()) + window
        return torch.arange(max(keys.start, low + 1), min(keys.stop, high))


class StridedGuide(Guide[Strided]):
    def max_keys(self, keys: int) -> int:
        return -(-keys // self.pattern.stride)

    def query_label(self, queries: Tensor) -> Tensor:
        return queries % self.pattern.stride

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        stride = self.pattern.stride
        first = keys.start + (torch.unique(queries % stride) - keys.start) % stride
        return _inside(first[:, None] + torch.arange(0, len(keys), stride), keys)


class RowGuide(Guide[Row]):
    def max_keys(self, keys: int) -> int:
        return min(keys, self.pattern.width)

    def query_label(self, queries: Tensor) -> Tensor:
        return queries // self.pattern.width

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        width = self.pattern.width
        rows = torch.unique(queries // width)
        return _inside(rows[:, None] * width + torch.arange(width), keys)


class SummaryGuide(Guide[Summary]):
    def max_keys(self, keys: int) -> int:
        return min(keys, self.pattern.places * -(-keys // self.pattern.stride))

    def key_label(self, keys: Tensor) -> Tensor:
        return (~self._in_summary(keys)).long()

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        every = torch.arange(keys.start, keys.stop)
        return every[self._in_summary(every)]

    def _in_summary(self, keys: Tensor) -> Tensor:
        return self.pattern.allows(keys, keys)


class GraphGuide(Guide[Graph]):
    block = 8  # neighbours of neighbouring nodes may have little in common
    pointwise = False

    def max_keys(self, keys: int) -> int:
        return int(torch.bincount(self.pattern.codes // self.pattern.nodes, minlength=1).max())

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        codes, nodes = self.pattern.codes, self.pattern.nodes
        of_queries = torch.isin(codes // nodes, queries)
        return _inside(torch.unique(codes[of_queries] % nodes), keys)


class RegionGuide(Guide[Region]):
    def max_keys(self, keys: int) -> int:
        start, stop = self.pattern.keys
        return max(0, min(keys, keys if stop is None else stop) - start)

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        every = torch.arange(keys.start, keys.stop)
        return every[between(every, self.pattern.keys)]


class ShiftedGuide(Guide[Shifted]):
    def __init__(self, pattern: Shifted) -> None:
        super().__init__(pattern)
        self.inner = guide(pattern.pattern)

    @property
    def pointwise(self) -> bool:
        return self.inner.pointwise

    def max_keys(self, keys: int) -> int:
        return self.inner.max_keys(keys)

    def query_label(self, queries: Tensor) -> Tensor:
        return self.inner.query_label(queries - self.pattern.by)

    def key_label(self, keys: Tensor) -> Tensor:
        return self.inner.key_label(keys - self.pattern.by)

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        by = self.pattern.by
        return self.inner.candidates(queries - by, range(keys.start - by, keys.stop - by)) + by

    def parts(self, keys: int) -> tuple[Part, ...]:
        by = self.pattern.by
        return tuple(
            Part(Shifted(part.rule, by), ShiftedGuide(Shifted(part.guide.pattern, by)))
            for part in self.inner.parts(keys)
        )


class FixedGuide(Guide[Fixed]):
    """As two patterns: the own block, and the summary places of all blocks."""

    def __init__(self, pattern: Fixed) -> None:
        super().__init__(pattern)
        blocks, summaries = Row(pattern.stride), Summary(pattern.stride, pattern.summary)
        self.expanded = guide(blocks | summaries)

    def max_keys(self, keys: int) -> int:
        return self.expanded.max_keys(keys)

    def parts(self, keys: int) -> tuple[Part, ...]:
        return self.expanded.parts(keys)


class PairGuide(Guide[Both | Either | Without]):
    """Base class of guides to combinations of two patterns."""

    def __init__(self, pattern: Both | Either | Without) -> None:
        super().__init__(pattern)
        self.first, self.second = guide(pattern.first), guide(pattern.second)

    @property
    def pointwise(self) -> bool:
        return self.first.pointwise and self.second.pointwise


class BothGuide(PairGuide):
    def max_keys(self, keys: int) -> int:
        return min(self.first.max_keys(keys), self.second.max_keys(keys))

    def parts(self, keys: int) -> tuple[Part, ...]:
        sparse, other = self.first, self.second
        if other.max_keys(keys) < sparse.max_keys(keys):
            sparse, other = other, sparse
        return tuple(Part(part.rule & other.pattern, part.guide) for part in sparse.parts(keys))


class EitherGuide(PairGuide):
    def max_keys(self, keys: int) -> int:
        return min(keys, self.first.max_keys(keys) + self.second.max_keys(keys))

    def parts(self, keys: int) -> tuple[Part, ...]:
        first = self.pattern.first
        rest = (Part(part.rule - first, part.guide) for part in self.second.parts(keys))
        return (*self.first.parts(keys), *rest)


class WithoutGuide(PairGuide):
    def max_keys(self, keys: int) -> int:
        return self.first.max_keys(keys)

    def parts(self, keys: int) -> tuple[Part, ...]:
        without = self.pattern.second
        return tuple(Part(part.rule - without, part.guide) for part in self.first.parts(keys))


GUIDES: dict[type[Pattern], type[Guide[Any]]] = {
    Full: Guide,
    Causal: Guide,
    Local: LocalGuide,
    Strided: StridedGuide,
    Row: RowGuide,
    Summary: SummaryGuide,
    Fixed: FixedGuide,
    Graph: GraphGuide,
    Region: RegionGuide,
    Shifted: ShiftedGuide,
    Both: BothGuide,
    Either: EitherGuide,
    Without: WithoutGuide,
}


def guide(pattern: Pattern) -> Guide[Any]:
    """The guide to a pattern, by its exact class: a subclass may have another rule."""
    return GUIDES.get(type(pattern), UnknownGuide)(pattern)


def count_pairs(pattern: Pattern, length: int) -> int:
    """How many (query, key) pairs a pattern allows in a sequence of `length` positions."""
    key = torch.arange(length)
    # A few rows at a time, which stay in the CPU's cache.
    rows = key.split(max(1, 2**18 // max(length, 1)))
    return sum(int(pattern.allows(query[:, None], key[None, :]).sum()) for query in rows)


def blind_positions(pattern: Pattern, length: int) -> list[int]:
    """Positions of a sequence without any allowed key under a pattern."""
    positions = torch.arange(length)
    # Positions that may attend to themselves need no further check.
    doubtful = positions[~pattern.allows(positions, positions)]
    blind = []
    for query in doubtful.split(256) if len(doubtful) else ():
        seen = torch.zeros(len(query), dtype=torch.bool)
        for part in guide(pattern).parts(length):
            key = part.guide.candidates(query, range(length))
            seen |= part.rule.allows(query[:, None], key[None, :]).any(dim=1)
        blind += query[~seen].tolist()
    return blind


def _inside(positions: Tensor, keys: range) -> Tensor:
    return positions[(positions >= keys.start) & (positions < keys.stop)]
