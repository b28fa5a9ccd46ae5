"""Patterns that differ: from place to place, from head to head, from sequence to sequence.

A captioned picture is one sequence whose first places are characters and whose others are
pixels; a Sparse Transformer may give each head a pattern of its own; a batch of graphs has a
pattern for each of its sequences.

Axes: Q queries, K keys, H heads, B batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.core.rules import Part, Pattern


@dataclass(frozen=True)
class Region(Pattern):
    """Queries from one stretch of positions look at keys of another; None has no end."""

    queries: tuple[int, int | None]
    keys: tuple[int, int | None]

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return _between(query, self.queries) & _between(key, self.keys)

    def most_keys(self, keys: int) -> int:
        start, stop = self.keys
        return max(0, min(keys, keys if stop is None else stop) - start)

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        every = torch.arange(keys.start, keys.stop)
        return every[_between(every, self.keys)]


@dataclass(frozen=True)
class Shifted(Pattern):
    """A pattern whose positions count from `by`: a picture that begins after its caption."""

    pattern: Pattern
    by: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.pattern.allows(query - self.by, key - self.by)

    def most_keys(self, keys: int) -> int:
        return self.pattern.most_keys(keys)

    @property
    def pointwise(self) -> bool:
        return self.pattern.pointwise

    def label(self, queries: Tensor) -> Tensor:
        return self.pattern.label(queries - self.by)

    def key_label(self, keys: Tensor) -> Tensor:
        return self.pattern.key_label(keys - self.by)

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        moved = range(keys.start - self.by, keys.stop - self.by)
        return self.pattern.candidates(queries - self.by, moved) + self.by

    def parts(self, keys: int) -> tuple[Part, ...]:
        return tuple(
            Part(Shifted(part.rule, self.by), Shifted(part.guide, self.by))
            for part in self.pattern.parts(keys)
        )


@dataclass(frozen=True)
class Several(Pattern):
    """Base of patterns that differ; asked about all together, it allows what one of them does."""

    patterns: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        if not self.patterns:
            raise ValueError(f"{type(self).__name__}: it has no patterns, but it needs at least 1")

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return torch.stack([each.allows(query, key) for each in self.patterns]).any(dim=0)


@dataclass(frozen=True)
class PerHead(Several):
    """A pattern of its own for each head; fewer patterns than heads go round."""

    def by_head(self, heads: int) -> tuple[Pattern, ...]:
        return tuple(self.patterns[head % len(self.patterns)] for head in range(heads))


@dataclass(frozen=True)
class Each(Several):
    """A pattern of its own for each sequence of a batch, such as its graph."""

    def by_row(self, batch: int) -> tuple[Pattern, ...]:
        if len(self.patterns) != batch:
            raise ValueError(
                f"Each: there are {len(self.patterns)} patterns for {batch} sequences: there "
                f"must be one for each"
            )
        return self.patterns


def _between(positions: Tensor, bounds: tuple[int, int | None]) -> Tensor:
    start, stop = bounds
    from_start = positions >= start
    return from_start if stop is None else from_start & (positions < stop)
