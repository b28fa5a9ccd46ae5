"""Tables of tensor names, used in both directions: theirs to ours and ours to theirs.

A `Rename` maps one of our tensors to one or several of theirs (`{}` matches the same word on both
sides, usually the number of a layer) and says how theirs are laid out in ours. Import and export
use the same table. Entries are matched by name, so an encoder-decoder needs no special handling.
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
    """How their tensors are laid out in one of ours."""

    def shapes(self, ours: Shape, config: ModelConfig) -> list[Shape]:
        """The shapes that their tensors must have."""

    def join(self, theirs: Sequence[Tensor]) -> Tensor: ...

    def split(self, ours: Tensor, config: ModelConfig) -> list[Tensor]: ...


class Same:
    """One tensor, unchanged."""

    def shapes(self, ours: Shape, config: ModelConfig) -> list[Shape]:
        return [ours]

    def join(self, theirs: Sequence[Tensor]) -> Tensor:
        return theirs[0]

    def split(self, ours: Tensor, config: ModelConfig) -> list[Tensor]:
        return [ours]


class Transposed(Same):
    """One matrix, transposed: theirs multiplies from the right."""

    def shapes(self, ours: Shape, config: ModelConfig) -> list[Shape]:
        return [ours[::-1]]

    def join(self, theirs: Sequence[Tensor]) -> Tensor:
        return theirs[0].T.contiguous()

    def split(self, ours: Tensor, config: ModelConfig) -> list[Tensor]:
        return [ours.T.contiguous()]


class RowVector(Same):
    """One vector, theirs with a leading axis of size 1."""

    def shapes(self, ours: Shape, config: ModelConfig) -> list[Shape]:
        return [(1, *ours)]

    def join(self, theirs: Sequence[Tensor]) -> Tensor:
        return theirs[0][0]

    def split(self, ours: Tensor, config: ModelConfig) -> list[Tensor]:
        return [ours[None]]


@dataclass(frozen=True)
class Stacked:
    """Several tensors, concatenated along axis 0; `rows` gives the size of each."""

    rows: Callable[[ModelConfig], Sequence[int]]

    def shapes(self, ours: Shape, config: ModelConfig) -> list[Shape]:
        return [(rows, *ours[1:]) for rows in self.rows(config)]

    def join(self, theirs: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(theirs))

    def split(self, ours: Tensor, config: ModelConfig) -> list[Tensor]:
        return [part.contiguous() for part in ours.split(list(self.rows(config)))]


def qkv_rows(config: ModelConfig) -> tuple[int, int, int]:
    """Rows of the query, key and value matrices in our fused projection."""
    keys = (config.key_heads or config.heads) * config.resolved_head_width
    return config.heads * config.resolved_head_width, keys, keys


def gate_rows(config: ModelConfig) -> tuple[int, int]:
    return config.hidden, config.hidden


SAME, TRANSPOSED, ROW_VECTOR = Same(), Transposed(), RowVector()
QKV, GATE_UP = Stacked(qkv_rows), Stacked(gate_rows)


@dataclass(frozen=True)
class Rename:
    """One entry of a table of names."""

    ours: str
    theirs: str | tuple[str, ...]
    layout: Layout = SAME

    def match(self, name: str) -> tuple[str, ...] | None:
        """Their names for one of ours, or None if this entry is about another tensor."""
        pattern = re.escape(self.ours).replace(r"\{\}", r"([^.]+)")
        match = re.fullmatch(pattern, name)
        if match is None:
            return None
        theirs = (self.theirs,) if isinstance(self.theirs, str) else self.theirs
        return tuple(each.format(*match.groups()) for each in theirs)


def their_names(renames: Sequence[Rename], name: str) -> tuple[tuple[str, ...], Layout]:
    """Their names for one of our tensors, and their layout in it."""
    for rename in renames:
        theirs = rename.match(name)
        if theirs is not None:
            return theirs, rename.layout
    raise KeyError(f"the table has no entry for {name}")
