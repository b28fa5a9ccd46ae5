"""Choice of the checkpoint to use: the last, unless it is significantly worse than the best.

The best of several evaluations on a few hundred texts is partly the luckiest one. A run whose
learning rate came down ends near the best place it found, so its last checkpoint is used, unless
the validation says that it is worse than the best one by more than two standard errors of their
difference, text by text. A run that was stopped, whose rate did not come down, or that did not
record how sure its evaluations are is used at its best evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clearformer.config import Constant, InverseSqrt, Schedule
from clearformer.tasks.measured import standard_error

SIGNIFICANT = 2  # standard errors
LOW = 0.1  # of the base rate: a schedule that ends there has come down


@dataclass(frozen=True)
class Choice:
    """The step that is used, and why."""

    step: int
    why: str
    other: int | None = None  # a checkpoint that could be thought better


def compared(
    best: Sequence[float] | None, last: Sequence[float], larger_is_better: bool
) -> dict[str, float] | None:
    """By how much the last evaluation is behind the best one, and the standard error of that.

    Scores are of the same texts in the same order; None: nothing can be said.
    """
    if best is None or len(best) != len(last):
        return None
    sign = 1 if larger_is_better else -1
    apart = [sign * (one - other) for one, other in zip(best, last, strict=True)]
    error = standard_error(apart)
    behind = sum(apart) / max(len(apart), 1)
    if error is None or not math.isfinite(behind):
        return None
    return {"behind": behind, "error": error}


def choose(numbers: Mapping[str, Any], newest: int, schedule: Schedule) -> Choice:
    """The checkpoint to use, by the `state.json` of the newest one, which is not trusted."""
    best, last = (_record(numbers.get(name)) for name in ("best", "last"))
    if best is None:
        return Choice(newest, "the last checkpoint; no evaluation was recorded")
    step = best["step"]
    if step == newest:
        return Choice(newest, "the last checkpoint, and the best on its validation data")
    shown = "the best on its validation data"
    if last is None or last["step"] != newest:
        return Choice(step, f"{shown}; the last, step {newest}, was not compared with it", newest)
    behind, error = (_number(last.get(name)) for name in ("behind", "error"))
    if behind is None or error is None:
        return Choice(step, f"{shown}; the last, step {newest}, was not compared with it", newest)
    if behind <= 0:
        return Choice(newest, f"the last checkpoint, as good on its validation data as step {step}")
    if not (last.get("finished") is True and comes_down(schedule)):
        why = "the learning rate had not come down at the last"
        return Choice(step, f"{shown}; {why}, step {newest}", newest)
    figures = f"{behind:.4f}, and two standard errors of that are {SIGNIFICANT * error:.4f}"
    if behind > SIGNIFICANT * error:
        return Choice(step, f"{shown}; the last, step {newest}, is worse by {figures}", newest)
    return Choice(newest, f"the last checkpoint; it is worse than step {step} by {figures}", step)


def comes_down(schedule: Schedule) -> bool:
    """Whether a schedule ends at a low rate."""
    return not isinstance(schedule, Constant | InverseSqrt) and schedule.final <= LOW


def _record(value: Any) -> Mapping[str, Any] | None:
    known = isinstance(value, dict) and type(value.get("step")) is int and value["step"] >= 0
    return value if known else None


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None
