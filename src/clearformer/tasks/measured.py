"""Metrics of an evaluation with their standard error, and evaluation mode."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from clearformer.inference import modes


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
    """Of the mean of independent scores; None: it cannot be told."""
    if len(scores) < 2:
        return None
    error = float(torch.tensor(scores, dtype=torch.float64).std()) / math.sqrt(len(scores))
    return error if math.isfinite(error) else None


def shares(sums: Sequence[float], total: float) -> list[float]:
    """Parts of a sum, as scores whose mean is that sum over `total`."""
    return [each * len(sums) / total for each in sums]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[torch.device]:
    """Put a model into evaluation mode, without gradients; restore its mode afterwards."""
    with modes.evaluating(model), torch.inference_mode():
        yield next(model.parameters()).device
