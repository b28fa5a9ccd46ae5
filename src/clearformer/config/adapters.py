"""Adapters: LoRA and DoRA, small updates that are trained beside frozen matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from clearformer import limits
from clearformer.core.patterns import require
from clearformer.did_you_mean import nearest

ALL = "all"
# Matrices of a block, and rows of those that hold several.
TARGETS = ("q", "k", "v", "qkv", "o", "gate", "up", "down")


@dataclass(frozen=True, kw_only=True)
class _LowRank:
    """What LoRA and DoRA have in common."""

    rank: int = 8
    """Rank of each update: columns of B and rows of A."""
    alpha: float = 16.0
    """Updates are scaled by alpha / rank."""
    targets: str = ALL
    """Matrices to adapt, with commas between them: q, k, v, qkv (the three as one), o, gate, up,
    down; all: every one in the blocks."""
    dropout: float = 0.0
    """Dropout of the input of A, in training."""
    rank_stabilized: bool = False
    """Scale by alpha / sqrt(rank) instead (rsLoRA)."""
    base: Literal["float32", "bfloat16", "int8"] | None = None
    """How the frozen matrices of the blocks are held; none: as they are stored."""

    def __post_init__(self) -> None:
        require(self, "rank", self.rank >= 1, "at least 1")
        require(self, "rank", self.rank <= limits.MAX_WIDTH, f"at most {limits.MAX_WIDTH:,}")
        require(self, "alpha", 0 < self.alpha < math.inf, "above 0")
        require(self, "dropout", 0 <= self.dropout < 1, "at least 0 and below 1")
        names = self.targets.split(",")
        for name in names:
            if name not in (*TARGETS, ALL):
                known = nearest(name, (*TARGETS, ALL))
                raise ValueError(f"{type(self).__name__}: targets has {name!r:.40}: {known}")
        both = "qkv" in names and {"q", "k", "v"} & set(names)
        if both or len(set(names)) < len(names) or (ALL in names and len(names) > 1):
            raise ValueError(
                f"{type(self).__name__}: targets is {self.targets!r:.60}, which names a matrix "
                f"twice: name each once"
            )

    @property
    def scale(self) -> float:
        """The factor of B A."""
        return self.alpha / (math.sqrt(self.rank) if self.rank_stabilized else self.rank)


@dataclass(frozen=True, kw_only=True)
class LoRA(_LowRank):
    """W + scale B A instead of a frozen matrix W (Hu et al. 2021).

    Example:
        >>> import clearformer as cf
        >>> cf.LoRA(rank=4, alpha=8, targets="q,v").scale
        2.0
    """


@dataclass(frozen=True, kw_only=True)
class DoRA(_LowRank):
    """LoRA for the direction of each row of a matrix, and a learned length (Liu et al. 2024).

    Example:
        >>> import clearformer as cf
        >>> cf.DoRA(rank=4, alpha=8, rank_stabilized=True).scale
        4.0
    """


Adapter = LoRA | DoRA
