"""Class weights: a loss in which rare classes count as much as frequent ones."""

from __future__ import annotations

from types import MethodType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from clearformer.core.heads import IGNORE, SumAndCount, at_least_float32, require_targets


def balanced(labels: NDArray[Any], classes: int) -> Tensor:
    """A weight for each class, inverse to its number of rows; their mean over the rows is 1."""
    counts = np.bincount(labels[labels >= 0], minlength=classes)
    occurring = max(int((counts > 0).sum()), 1)
    weights = counts.sum() / (occurring * np.maximum(counts, 1))
    return torch.tensor(weights, dtype=torch.float32)


def weight_classes(head: nn.Module, weights: Tensor) -> None:
    """Let the head weight its loss; the weights are no part of a checkpoint."""
    device = next(head.parameters()).device
    head.register_buffer("class_weights", weights.to(device), persistent=False)
    vars(head)["loss"] = MethodType(_weighted_loss, head)  # of this head alone


def weight_labels(head: nn.Module, targets: Tensor) -> None:
    """Let a multi-label head weight texts with and without each label alike: targets (rows, C)."""
    device, share = next(head.parameters()).device, targets.float().mean(0)  # (C,)
    for name, part in (("with_label", share), ("without_label", 1 - share)):
        weights = torch.where((share > 0) & (share < 1), 0.5 / part.clamp(min=1e-12), 1.0)
        head.register_buffer(name, weights.to(device), persistent=False)
    vars(head)["loss"] = MethodType(_weighted_label_loss, head)


def _weighted_label_loss(
    head: nn.Module, hidden: Tensor, targets: Tensor, attention_mask: Tensor | None = None
) -> SumAndCount:
    logits = at_least_float32(head(hidden, attention_mask))  # (B, C)
    valid, smoothing = targets != IGNORE, getattr(head, "label_smoothing", 0.0)
    wanted = targets.to(logits) * (1 - smoothing) + smoothing / 2
    each = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    weights = torch.where(
        targets > 0, head.get_buffer("with_label"), head.get_buffer("without_label")
    )
    return (each * weights)[valid].sum()[None], valid.sum()[None]


def _weighted_loss(
    head: nn.Module, hidden: Tensor, targets: Tensor, attention_mask: Tensor | None = None
) -> SumAndCount:
    """Sum of the weighted losses, and the number of targets: the weights have mean 1."""
    logits = head(hidden, attention_mask)
    require_targets(targets, logits.shape[:-1])
    valid = targets != IGNORE
    each = F.cross_entropy(
        at_least_float32(logits)[valid],
        targets[valid],
        reduction="none",
        label_smoothing=getattr(head, "label_smoothing", 0.0),
    )
    # Not torch's `weight`, which would weight the smoothed share of every class, too.
    total = (each * head.get_buffer("class_weights")[targets[valid]]).sum()
    return total[None], valid.sum()[None]
