"""How the learning rate moves: a warm-up, then a shape over the rest of the run.

A schedule is a function of the step and of progress, the share of the run that is done (by
steps or by the clock, whichever the budget is in). It gives the factor on the base rate.
"""

import math

from clearformer.config import Constant, Cosine, InverseSqrt, Linear, Schedule, StableThenDecay


def factor(schedule: Schedule, step: int, progress: float) -> float:
    """What the base learning rate is multiplied by at `step` (from 0), `progress` from 0 to 1."""
    warm = min(1.0, (step + 1) / schedule.warmup) if schedule.warmup else 1.0
    left = 1.0 - min(max(progress, 0.0), 1.0)
    match schedule:
        case Constant():
            return warm
        case Linear(final=final):
            return warm * (final + (1 - final) * left)
        case Cosine(final=final):
            return warm * (final + (1 - final) * (1 - math.cos(math.pi * left)) / 2)
        case StableThenDecay(decay=decay, final=final):
            # Flat until the last `decay` of the run, then down in a straight line.
            return warm * (final + (1 - final) * min(1.0, left / decay))
        case InverseSqrt():
            # The original's: up to the warm-up's end in a line, then down with 1/sqrt(step).
            return min(warm, math.sqrt(max(schedule.warmup, 1) / (step + 1)))
