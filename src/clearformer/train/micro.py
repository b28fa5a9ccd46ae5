"""Micro-batches: a batch of any kind cut into parts, and its targets counted.

A batch is a frozen dataclass of tensors whose first axis is the batch; a field may also be a
tuple of tensors (two objectives) or absent. Its `targets` are what the loss counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from clearformer.core.heads import IGNORE


def counts(batch: Any) -> Tensor:
    """How many valid targets there are, one number for each objective."""
    targets = batch.targets if isinstance(batch.targets, tuple) else (batch.targets,)
    return torch.stack([(each != IGNORE).sum() for each in targets])


def cut(batch: Any, parts: int, device: torch.device) -> Sequence[Any]:
    """The batch in at most `parts` micro-batches, on the device of the model."""
    columns = [_pieces(getattr(batch, field.name), parts, device) for field in fields(batch)]
    return [type(batch)(*row) for row in zip(*columns, strict=True) if len(row[0])]


def _pieces(value: Any, parts: int, device: torch.device) -> Sequence[Any]:
    if value is None:
        return [None] * parts
    if isinstance(value, tuple):
        return list(zip(*(_pieces(each, parts, device) for each in value), strict=True))
    return value.to(device).tensor_split(parts)
