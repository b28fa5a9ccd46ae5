"""Positions by penalty (ALiBi) and of pictures, and rotary angles for longer contexts.

torch is imported inside the functions, so that reading a config does not load it.

Axes: T tokens, Q queries, K keys, H heads, D head width, E model width.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from clearformer.core.patterns import require
from clearformer.core.positions import Position, Scaling

if TYPE_CHECKING:
    from torch import Tensor, nn

    from clearformer.core.positions import Parameters


@dataclass(frozen=True, kw_only=True)
class ALiBi(Position):
    """A penalty that grows with distance, with a slope for each head (eq. 21)."""

    relative = True

    def bias(self, heads: int, queries: int, keys: int, like: Tensor) -> Tensor | None:
        import torch

        key = torch.arange(keys, device=like.device)
        query = torch.arange(keys - queries, keys, device=like.device)
        distance = (query[:, None] - key[None, :]).abs()  # (Q, K)
        # At least float32, and cast last: bfloat16 cannot tell distance 256 from 257.
        precision = torch.promote_types(like.dtype, torch.float32)
        slopes = torch.tensor(alibi_slopes(heads), dtype=precision, device=like.device)
        return (-slopes[:, None, None] * distance).to(like.dtype)  # (H, Q, K)


@functools.cache
def alibi_slopes(heads: int) -> tuple[float, ...]:
    """Falling powers of two; between two powers of two, every other slope of the next one."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    finer = [2.0 ** (-4.0 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return tuple(slopes + finer[: heads - power])


@dataclass(frozen=True, kw_only=True)
class Grid(Position):
    """A learned vector for each row and each column of a picture `columns` pixels wide."""

    columns: int

    def __post_init__(self) -> None:
        require(self, "columns", self.columns >= 1, "at least 1")

    def max_length(self, length: int) -> int | None:
        return -(-length // self.columns) * self.columns  # whole rows

    def embedding_parameters(self, length: int, width: int) -> Parameters:
        from torch import nn

        learned = nn.Module()
        learned.row = nn.Embedding(-(-length // self.columns), width)
        learned.column = nn.Embedding(self.columns, width)
        return learned

    def added(self, positions: Tensor, width: int, learned: Parameters) -> Tensor | None:
        assert learned is not None
        row, column = cast("nn.Embedding", learned.row), cast("nn.Embedding", learned.column)
        total: Tensor = row(positions // self.columns) + column(positions % self.columns)
        return total  # (..., T, E)


@dataclass(frozen=True, kw_only=True)
class LinearScaling(Scaling):
    """Every frequency is divided by `factor`."""

    factor: float

    def __post_init__(self) -> None:
        require(self, "factor", self.factor >= 1, "at least 1")

    def scaled(self, frequencies: Tensor) -> Tensor:
        return frequencies / self.factor


@dataclass(frozen=True, kw_only=True)
class Llama3Scaling(Scaling):
    """Frequencies with fewer than `low` periods in `length` tokens are divided by `factor`, those
    with more than `high` stay, and in between the two are mixed."""

    factor: float
    low: float
    high: float
    length: int

    def __post_init__(self) -> None:
        require(self, "factor", self.factor >= 1, "at least 1")
        require(self, "high", 0 < self.low < self.high, "above low, which is above 0")
        require(self, "length", self.length >= 1, "at least 1")

    def scaled(self, frequencies: Tensor) -> Tensor:
        periods = self.length * frequencies / (2 * math.pi)  # (D/2,)
        fast = ((periods - self.low) / (self.high - self.low)).clamp(0, 1)
        return (1 - fast) * frequencies / self.factor + fast * frequencies
