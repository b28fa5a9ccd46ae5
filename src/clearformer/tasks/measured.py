"""Metrics of an evaluation, with their standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Measured:
    """The result of an evaluation during training."""

    figures: dict[str, float]
    scores: Sequence[float]  # of each text or part of a text; their mean is the deciding metric
    protocol: str  # how the metrics were measured

    @property
    def error(self) -> float | None:
        """The standard error of the deciding metric."""
        return standard_error(self.scores)


def standard_error(scores: Sequence[float]) -> float | None:
    """The standard error of the mean of independent scores; None if it is undefined."""
    if len(scores) < 2:
        return None
    error = float(torch.tensor(scores, dtype=torch.float64).std()) / math.sqrt(len(scores))
    return error if math.isfinite(error) else None


def shares(sums: Sequence[float], total: float) -> list[float]:
    """Scale the parts of a sum so that their mean is the sum divided by `total`."""
    return [each * len(sums) / total for each in sums]
