"""Micro-batches: a batch of any kind cut into parts, and its targets counted.

The batch of a step is the same however many ranks there are; each takes its rows of it. A batch
is a frozen dataclass of tensors whose first axis is the batch; a field may also be a tuple of
tensors (two objectives) or absent. Its `targets` are what the loss counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.core.heads import IGNORE
from clearformer.train.step import is_out_of_memory

TRYING_SECONDS = 60  # who is out of memory wants to know soon


def counts(batch: Any) -> Tensor:
    """How many valid targets there are, one number for each objective."""
    targets = batch.targets if isinstance(batch.targets, tuple) else (batch.targets,)
    return torch.stack([(each != IGNORE).sum() for each in targets])


def parts_of_a_rank(batch: int, accumulate: int, world: int) -> int:
    """In how many micro-batches each of `world` ranks takes its share of a batch.

    No micro-batch is larger than it would be on one rank, since memory is what limits it.
    """
    if batch % world:
        fitting = [n for n in range(1, batch + 1) if batch % n == 0]
        raise ValueError(
            f"a batch of {batch} cannot be shared evenly by {world} processes: use one of "
            f"{', '.join(map(str, fitting))} processes, or a batch of "
            f"{batch - batch % world or world} or {batch - batch % world + world}"
        )
    rows, largest = batch // world, batch // accumulate
    return next(n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= largest)


def cut(
    batch: Any, parts: int, device: torch.device, rank: int = 0, world: int = 1
) -> Sequence[Any]:
    """A rank's rows of the batch in at most `parts` micro-batches, on the model's device.

    Every rank gets as many, since all of them exchange what they found together: one for
    which there are no rows looks on with a row that has no target.
    """
    columns = [
        _pieces(getattr(batch, field.name), parts * world, device) for field in fields(batch)
    ]
    cuts = [type(batch)(*row) for row in zip(*columns, strict=True)]
    taken = sum(len(_first(each)) > 0 for each in cuts[:parts])
    own = cuts[rank * parts : rank * parts + taken]
    return [each if len(_first(each)) else _without_targets(cuts[0]) for each in own]


def fewest_that_fit(model: nn.Module, batch: Any, rows: int, parts: int) -> int | None:
    """In how many micro-batches, more than `parts`, a step has room, tried; None: in none."""
    device, began = next(model.parameters()).device, time.monotonic()
    for more in range(parts + 1, rows + 1):
        if rows % more:
            continue
        if time.monotonic() - began > TRYING_SECONDS:
            return None
        try:
            sums, _ = model.loss(cut(batch, more, device)[0])  # type: ignore[operator]
            sums.sum().backward()
            return more
        except RuntimeError as problem:
            if not is_out_of_memory(problem):
                raise
        finally:
            model.zero_grad()
    return None


def _first(batch: Any) -> Tensor:
    return getattr(batch, fields(batch)[0].name)


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
