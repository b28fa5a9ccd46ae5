"""Tables of names, read in both directions: which of their tensors are which of ours.

A row says that one of our tensors is one of theirs, or several of theirs in one (`{}` stands
for the same word on both sides, a layer's number most often), and how they lie in it. Reading
and writing use the same rows, so the two cannot drift apart. Since rows are matched by name, a
model of two stacks needs no more than a second set of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from clearformer.config import ModelConfig

Shape = tuple[int, ...]


class Layout(Protocol):
    """How their tensors lie in one of ours."""

    def shapes(self, ours: Shape, config: ModelConfig) -> list[Shape]:
        """The shapes that theirs must have."""

    def join(self, theirs: Sequence[Tensor]) -> Tensor: ...

    def cut(self, ours: Tensor, config: ModelConfig) -> list[Tensor]: ...


class Same:
    """One of theirs, as it is."""

    def shapes(self, ours: Shape, config: ModelConfig) -> list[Shape]:
        return [ours]

    def join(self, theirs: Sequence[Tensor]) -> Tensor:
        return theirs[0]

    def cut(self, ours: Tensor, config: ModelConfig) -> list[Tensor]:
        return [ours]


class Turned(Same):
    """One of theirs, with its two axes exchanged: a matrix that acts from the right."""

    def shapes(self, ours: Shape, config: ModelConfig) -> list[Shape]:
        return [ours[::-1]]

    def join(self, theirs: Sequence[Tensor]) -> Tensor:
        return theirs[0].T.contiguous()

    def cut(self, ours: Tensor, config: ModelConfig) -> list[Tensor]:
        return [ours.T.contiguous()]


class OneRow(Same):
    """One of theirs, a matrix of a single row."""

    def shapes(self, ours: Shape, config: ModelConfig) -> list[Shape]:
        return [(1, *ours)]

    def join(self, theirs: Sequence[Tensor]) -> Tensor:
        return theirs[0][0]

    def cut(self, ours: Tensor, config: ModelConfig) -> list[Tensor]:
        return [ours[None]]


@dataclass(frozen=True)
class Stacked:
    """Several of theirs, one below the other; `rows` says how many each has."""

    rows: Callable[[ModelConfig], Sequence[int]]

    def shapes(self, ours: Shape, config: ModelConfig) -> list[Shape]:
        return [(rows, *ours[1:]) for rows in self.rows(config)]

    def join(self, theirs: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(theirs))

    def cut(self, ours: Tensor, config: ModelConfig) -> list[Tensor]:
        return [part.contiguous() for part in ours.split(list(self.rows(config)))]


def queries_keys_values(config: ModelConfig) -> tuple[int, int, int]:
    """Rows of the three matrices that we keep as one."""
    keys = (config.key_heads or config.heads) * config.resolved_head_width
    return config.heads * config.resolved_head_width, keys, keys


def gate_and_value(config: ModelConfig) -> tuple[int, int]:
    return config.hidden, config.hidden


SAME, TURNED, ONE_ROW = Same(), Turned(), OneRow()
PROJECTIONS, GATED = Stacked(queries_keys_values), Stacked(gate_and_value)


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    ours: str
    theirs: str | tuple[str, ...]
    layout: Layout = SAME

    def match(self, name: str) -> tuple[str, ...] | None:
        """Their names for one of ours, if this row is about it."""
        pattern = re.escape(self.ours).replace(r"\{\}", r"([^.]+)")
        found = re.fullmatch(pattern, name)
        if found is None:
            return None
        theirs = (self.theirs,) if isinstance(self.theirs, str) else self.theirs
        return tuple(each.format(*found.groups()) for each in theirs)


def find(rows: Sequence[Row], name: str) -> tuple[tuple[str, ...], Layout]:
    """Their names for one of ours, and how they lie in it."""
    for row in rows:
        theirs = row.match(name)
        if theirs is not None:
            return theirs, row.layout
    raise KeyError(f"no row of the table is about {name}")
