"""Class weights: a loss in which rare classes count as much as frequent ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from clearformer.core.heads import IGNORE, SumAndCount, at_least_float32, require_targets
from clearformer.extensions.heads import binary_cross_entropy


def balanced(labels: NDArray[Any], classes: int) -> Tensor:
    """A weight for each class, inverse to its number of rows; their mean over the rows is 1."""
    counts = np.bincount(labels[labels >= 0], minlength=classes)
    occurring = max(int((counts > 0).sum()), 1)
    weights = counts.sum() / (occurring * np.maximum(counts, 1))
    return torch.tensor(weights, dtype=torch.float32)


@dataclass(frozen=True)
class WeightedCrossEntropy:
    """The criterion of a head whose classes have weights (C,) of mean 1."""

    weights: Tensor

    def __call__(self, logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> SumAndCount:
        """Sum of the weighted losses, and the number of targets."""
        require_targets(targets, logits.shape[:-1])
        valid = targets != IGNORE
        each = F.cross_entropy(
            at_least_float32(logits)[valid],
            targets[valid],
            reduction="none",
            label_smoothing=smoothing,
        )
        # Not torch's `weight`, which would weight the smoothed share of every class, too.
        total = (each * self.weights.to(each)[targets[valid]]).sum()
        return total[None], valid.sum()[None]


@dataclass(frozen=True)
class WeightedLabels:
    """The criterion of a multi-label head: each label (C,) has a weight where it is given, and
    another where it is not."""

    given: Tensor
    absent: Tensor

    @classmethod
    def balanced(cls, targets: Tensor) -> WeightedLabels:
        """Texts with a label count as much as those without it: targets (rows, C)."""
        share = targets.float().mean(0)  # (C,)
        some = (share > 0) & (share < 1)
        given, absent = (
            torch.where(some, 0.5 / part.clamp(min=1e-12), 1.0) for part in (share, 1 - share)
        )
        return cls(given, absent)

    def __call__(self, logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> SumAndCount:
        device = logits.device
        weights = torch.where(targets > 0, self.given.to(device), self.absent.to(device))
        return binary_cross_entropy(logits, targets, smoothing, weights)
