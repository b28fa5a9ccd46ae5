"""Optimizer step: forward, backward, clip, update. A NaN never reaches the weights.

The loss is a sum over valid targets divided by their number in the *whole* batch, so that gradient
accumulation changes nothing but rounding: (x1 + x2) / (n1 + n2), never the mean of means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from clearformer.distributed.parallel import NOT_PARALLEL, Parallelism
from clearformer.training.loss_scaling import MAX_CONSECUTIVE_SKIPS, Scaling

Loss = Callable[[Any], tuple[Tensor, Tensor]]  # a batch to (sums, counts), one per objective


@dataclass(frozen=True)
class StepResult:
    """Result of one step."""

    loss: float
    gradient_norm: float
    targets: int
    skipped: bool = False  # the gradient overflowed: no update


class NonFiniteError(ArithmeticError):
    """A loss or gradient that is NaN or infinite; the weights are unchanged."""


def train_step(
    loss: Loss,
    parameters: Iterable[nn.Parameter],
    optimizers: Sequence[Optimizer],
    batches: Sequence[Any],
    counts: Tensor,
    clip: float | None,
    scaling: Scaling = Scaling(),
    parallel: Parallelism = NOT_PARALLEL,
) -> StepResult:
    """Update the parameters by the gradient of all micro-batches, with `counts` targets in total.

    With several ranks, `batches` are those of this rank and `counts` those of all.
    """
    parameters = list(parameters)
    for optimizer in optimizers:
        optimizer.zero_grad()
    total = torch.zeros(())
    # An objective without targets adds nothing, and must not divide by zero.
    divisor = counts.clamp(min=1)
    for number, batch in enumerate(batches, start=1):
        with parallel.gradient_sync(last=number == len(batches)):
            sums, _ = loss(batch)
            # Ranks average their gradients, but the sum is wanted.
            part = parallel.world_size * (sums / divisor.to(sums.device)).sum()
            scaling.scale_loss(part).backward()
        total += part.detach().cpu()
    # From here on every rank has the same numbers and takes the same branches.
    total = parallel.group.mean(total)
    scaling.unscale(optimizers)
    norm = parallel.full_tensor(
        nn.utils.clip_grad_norm_(parameters, float("inf") if clip is None else clip)
    )
    targets = int(counts.sum())
    if scaling.overflowed():
        if scaling.in_a_row >= MAX_CONSECUTIVE_SKIPS:
            raise NonFiniteError(
                f"{MAX_CONSECUTIVE_SKIPS} steps in a row overflowed float16, the loss scale is "
                f"down to {scaling.scale:.4g} (--precision bfloat16 or float32 has more range)"
            )
        return StepResult(total.item(), norm.item(), targets, skipped=True)
    if not (torch.isfinite(total) and torch.isfinite(norm)):
        raise NonFiniteError(f"the loss is {total.item():.4g}, the gradient norm {norm.item():.4g}")
    if targets:
        for optimizer in optimizers:
            optimizer.step()
    return StepResult(total.item(), norm.item(), targets)


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether an error says that memory is full; torch has no error class for it on CPU."""
    if isinstance(problem, MemoryError):
        return True
    text = str(problem)
    return isinstance(problem, RuntimeError) and ("allocate" in text or "out of memory" in text)
