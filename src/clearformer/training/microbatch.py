"""Micro-batches: splitting a batch among ranks and gradient accumulation, counting targets.

The batch of a step does not depend on the number of ranks; each takes its rows of it. A batch is a
frozen dataclass of tensors whose first axis is the batch; a field may also be a tuple of tensors
(two objectives) or None. Its `targets` are what the loss counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from clearformer.core.heads import IGNORE
from clearformer.distributed.parallel import Model
from clearformer.training.step import is_out_of_memory

TRIAL_SECONDS = 60  # for trials after a run was out of memory


def count_targets(batch: Any) -> Tensor:
    """The number of valid targets of each objective."""
    targets = batch.targets if isinstance(batch.targets, tuple) else (batch.targets,)
    return torch.stack([(each != IGNORE).sum() for each in targets])


def micro_batches_per_rank(batch: int, accumulate: int, world_size: int) -> int:
    """The number of micro-batches in which each rank processes its share of a batch.

    No micro-batch is larger than on a single rank, since memory limits it.
    """
    if batch % world_size:
        nearest = batch - batch % world_size
        fitting = [n for n in range(1, batch + 1) if batch % n == 0]
        raise ValueError(
            f"a batch of {batch} cannot be shared evenly by {world_size} processes: use one of "
            f"{', '.join(map(str, fitting))} processes, or a batch of "
            f"{nearest or world_size} or {nearest + world_size}"
        )
    rows, largest = batch // world_size, batch // accumulate
    return next(n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= largest)


def split(
    batch: Any, parts: int, device: torch.device, rank: int = 0, world_size: int = 1
) -> Sequence[Any]:
    """Split a rank's rows of the batch into at most `parts` micro-batches on `device`.

    Every rank gets the same number, since ranks exchange gradients with each of them. One without
    rows of its own gets a row without targets.
    """
    columns = [
        _pieces(getattr(batch, field.name), parts * world_size, device) for field in fields(batch)
    ]
    pieces = [type(batch)(*row) for row in zip(*columns, strict=True)]
    count = sum(_rows(each) > 0 for each in pieces[:parts])
    mine = pieces[rank * parts : rank * parts + count]
    return [each if _rows(each) else _without_targets(pieces[0]) for each in mine]


def fewest_fitting(model: Model, batch: Any, rows: int, parts: int) -> int | None:
    """Try how many micro-batches, more than `parts`, fit into memory; None if none does."""
    device, start = next(model.parameters()).device, time.monotonic()
    for more in range(parts + 1, rows + 1):
        if rows % more:
            continue
        if time.monotonic() - start > TRIAL_SECONDS:
            return None
        try:
            sums, _ = model.loss(split(batch, more, device)[0])
            sums.sum().backward()
            return more
        except RuntimeError as problem:
            if not is_out_of_memory(problem):
                raise
        finally:
            model.zero_grad()
    return None


def _rows(batch: Any) -> int:
    return len(getattr(batch, fields(batch)[0].name))


def _without_targets(batch: Any) -> Any:
    targets = batch.targets
    if isinstance(targets, tuple):
        return replace(batch, targets=tuple(torch.full_like(t, IGNORE) for t in targets))
    return replace(batch, targets=torch.full_like(targets, IGNORE))


def _pieces(value: Any, parts: int, device: torch.device) -> Sequence[Any]:
    if value is None:
        return [None] * parts
    if isinstance(value, tuple):
        return list(zip(*(_pieces(each, parts, device) for each in value), strict=True))
    return value.to(device).tensor_split(parts)
