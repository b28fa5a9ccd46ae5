"""Learning rate schedules: a warm-up, then a decay over the rest of the run.

A schedule returns the factor on the base learning rate. It depends on the step, on progress (the
share of the budget that is spent, in steps or in time) and on where the warm-up ended. The factor
reaches 1 at the end of the warm-up and never exceeds it.
"""

import math
from dataclasses import dataclass

from clearformer.config import Constant, Cosine, InverseSqrt, Linear, Schedule, StableThenDecay

MAX_WARMUP = 0.1  # share of a run


@dataclass(frozen=True)
class Warmup:
    """State of the warm-up."""

    factor: float  # on the base learning rate; 1: it is over
    steps: int = 0  # its length, if it is over
    share: float = 0.0  # of the run, if it is over


def by_steps(schedule: Schedule, step: int, total: int) -> Warmup:
    """The warm-up of a run of `total` steps, at `step` (from 0)."""
    steps = min(schedule.warmup, math.floor(MAX_WARMUP * total))
    return Warmup(min(1.0, (step + 1) / steps) if steps else 1.0, steps, steps / total)


def by_clock(schedule: Schedule, step: int, progress: float) -> Warmup:
    """The warm-up of a run with a budget in minutes, whose number of steps is unknown."""
    if not schedule.warmup:
        return Warmup(1.0)
    done = max((step + 1) / schedule.warmup, progress / MAX_WARMUP)
    return Warmup(min(1.0, done), step + 1, progress)


def factor(schedule: Schedule, step: int, progress: float, warmup: Warmup) -> float:
    """The factor on the base learning rate at `step` (from 0), with `progress` from 0 to 1."""
    if warmup.factor < 1:
        return warmup.factor
    left = 1.0 - min(max(progress, 0.0), 1.0)
    # Of the part after the warm-up.
    rest = min(1.0, left / (1.0 - warmup.share)) if warmup.share < 1 else 0.0
    match schedule:
        case Constant():
            return 1.0
        case Linear(final=final):
            return final + (1 - final) * rest
        case Cosine(final=final):
            return final + (1 - final) * (1 - math.cos(math.pi * rest)) / 2
        case StableThenDecay(decay=decay, final=final):
            # Constant until the last `decay` of the run, then linear.
            decay = min(decay, max(1.0 - warmup.share, 1e-9))
            return final + (1 - final) * min(1.0, left / decay)
        case InverseSqrt():
            # The original's: linear warm-up, then 1/sqrt(step).
            return min(1.0, math.sqrt(max(warmup.steps, 1) / (step + 1)))


def from_start(schedule: Schedule, step: int, progress: float) -> float:
    """The factor of earlier versions, for runs that began with it.

    The decay begins with the first step and is multiplied by the warm-up, so that Linear and
    Cosine never reach the base learning rate.
    """
    warm = min(1.0, (step + 1) / schedule.warmup) if schedule.warmup else 1.0
    if isinstance(schedule, InverseSqrt):
        return min(warm, math.sqrt(max(schedule.warmup, 1) / (step + 1)))
    return warm * factor(schedule, step, progress, Warmup(1.0))
