"""The learning rate over a run: a warm-up, then a shape over the rest.

A schedule gives the factor on the base rate. It depends on the step, on progress (the share of the
run that is done, by steps or by the clock, whichever the budget is in), and on where the warm-up
ended. The factor reaches 1 at the end of the warm-up and never exceeds it.
"""

import math
from dataclasses import dataclass

from clearformer.config import Constant, Cosine, InverseSqrt, Linear, Schedule, StableThenDecay

LONGEST = 0.1  # share of a run that the warm-up may take


@dataclass(frozen=True)
class Warmup:
    """How far the warm-up is, and where it ended."""

    factor: float  # on the base rate; 1: it is over
    steps: int = 0  # that it took, if it is over
    share: float = 0.0  # of the run that it took, if it is over


def by_steps(schedule: Schedule, step: int, total: int) -> Warmup:
    """The warm-up of a run of `total` steps, at `step` (from 0)."""
    steps = min(schedule.warmup, math.floor(LONGEST * total))
    return Warmup(min(1.0, (step + 1) / steps) if steps else 1.0, steps, steps / total)


def by_clock(schedule: Schedule, step: int, progress: float) -> Warmup:
    """The warm-up of a run that ends by the clock, whose number of steps nobody knows."""
    if not schedule.warmup:
        return Warmup(1.0)
    done = max((step + 1) / schedule.warmup, progress / LONGEST)
    return Warmup(min(1.0, done), step + 1, progress)


def factor(schedule: Schedule, step: int, progress: float, warmup: Warmup) -> float:
    """What the base learning rate is multiplied by at `step` (from 0), `progress` from 0 to 1."""
    if warmup.factor < 1:
        return warmup.factor
    left = 1.0 - min(max(progress, 0.0), 1.0)
    # Of the part after the warm-up; without one exactly what is left of the run.
    rest = min(1.0, left / (1.0 - warmup.share)) if warmup.share < 1 else 0.0
    match schedule:
        case Constant():
            return 1.0
        case Linear(final=final):
            return final + (1 - final) * rest
        case Cosine(final=final):
            return final + (1 - final) * (1 - math.cos(math.pi * rest)) / 2
        case StableThenDecay(decay=decay, final=final):
            # Flat until the last `decay` of the run, then down in a straight line.
            decay = min(decay, max(1.0 - warmup.share, 1e-9))
            return final + (1 - final) * min(1.0, left / decay)
        case InverseSqrt():
            # The original's: up to the warm-up's end in a line, then down with 1/sqrt(step).
            return min(1.0, math.sqrt(max(warmup.steps, 1) / (step + 1)))


def from_start(schedule: Schedule, step: int, progress: float) -> float:
    """The factor as it was in earlier versions, for runs that began with it.

    The decay begins with the first step and the warm-up multiplies it, so that Linear and Cosine
    never reach the base rate.
    """
    warm = min(1.0, (step + 1) / schedule.warmup) if schedule.warmup else 1.0
    if isinstance(schedule, InverseSqrt):
        return min(warm, math.sqrt(max(schedule.warmup, 1) / (step + 1)))
    return warm * factor(schedule, step, progress, Warmup(1.0))
