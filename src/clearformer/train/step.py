"""One optimizer step: forward, backward, clip, move. Nothing that is not finite gets through.

The loss is a sum over valid targets divided by their number in the *whole* batch, so cutting a
batch into micro-batches changes nothing but rounding: (x1 + x2) / (n1 + n2), and never the
mean of means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from clearformer.distributed.parallel import SINGLE, Single
from clearformer.train.loss_scaling import MOST_IN_A_ROW, Scaling

Loss = Callable[[Any], tuple[Tensor, Tensor]]  # a batch to (sums, counts), one per objective


@dataclass(frozen=True)
class Outcome:
    """What one step did; loss is the number that was optimised."""

    loss: float
    gradient_norm: float
    targets: int
    skipped: bool = False  # the gradient overflowed, and no weight moved


class NotFiniteError(ArithmeticError):
    """A loss or a gradient that is no number; the weights are as they were."""


def take(
    loss: Loss,
    parameters: Iterable[nn.Parameter],
    rules: Sequence[Optimizer],
    batches: Sequence[Any],
    counts: Tensor,
    clip: float | None,
    scaling: Scaling = Scaling(),
    spread: Single = SINGLE,
) -> Outcome:
    """Move the parameters by the gradient of all `batches` together, with `counts` targets.

    With several ranks `batches` are this rank's and `counts` everybody's.
    """
    parameters = list(parameters)
    for rule in rules:
        rule.zero_grad()
    total = torch.zeros(())
    # An objective without a single target adds nothing, and must not divide by zero.
    divisor = counts.clamp(min=1)
    for number, batch in enumerate(batches, start=1):
        with spread.exchanging(last=number == len(batches)):
            sums, _ = loss(batch)
            # The ranks' gradients are averaged, and it is their sum that is wanted.
            part = spread.world * (sums / divisor.to(sums.device)).sum()
            scaling.enlarge(part).backward()
        total += part.detach().cpu()
    # From here on every rank has the same numbers, and all come to the same conclusions.
    total = spread.ranks.mean(total)
    scaling.restore(rules)
    norm = spread.whole(
        nn.utils.clip_grad_norm_(parameters, float("inf") if clip is None else clip)
    )
    targets = int(counts.sum())
    if scaling.overflowed():
        if scaling.in_a_row >= MOST_IN_A_ROW:
            raise NotFiniteError(
                f"{MOST_IN_A_ROW} steps in a row overflowed float16, the loss scale is down to "
                f"{scaling.scale:.4g} (--precision bfloat16 or float32 has more range)"
            )
        return Outcome(total.item(), norm.item(), targets, skipped=True)
    if not (torch.isfinite(total) and torch.isfinite(norm)):
        raise NotFiniteError(f"the loss is {total.item():.4g}, the gradient norm {norm.item():.4g}")
    if targets:
        for rule in rules:
            rule.step()
    return Outcome(total.item(), norm.item(), targets)


def is_out_of_memory(problem: BaseException) -> bool:
    """Torch says it in words: `DefaultCPUAllocator: can't allocate memory`, `out of memory`."""
    if isinstance(problem, MemoryError):
        return True
    text = str(problem)
    return isinstance(problem, RuntimeError) and ("allocate" in text or "out of memory" in text)
