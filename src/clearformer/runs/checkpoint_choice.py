"""Choice of the checkpoint to use: the last, unless it is significantly worse than the best.

The best of several evaluations on a few hundred texts is partly due to chance. If the learning rate
has decayed, the last checkpoint is used, unless it is worse than the best one by more than two
standard errors of the paired difference. The best checkpoint is used for a run that was stopped,
whose learning rate did not decay, or that did not record standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clearformer.config import Constant, InverseSqrt, Schedule
from clearformer.tasks.measured import standard_error

SIGNIFICANT = 2  # standard errors
LOW = 0.1  # of the base learning rate: a schedule that ends there has decayed


@dataclass(frozen=True)
class Choice:
    """The step of the chosen checkpoint, and the reason."""

    step: int
    why: str
    other: int | None = None  # step of a checkpoint that could be preferred


def compared(
    best: Sequence[float] | None, last: Sequence[float], larger_is_better: bool
) -> dict[str, float] | None:
    """How far the last evaluation is behind the best one, with the standard error.

    Scores are of the same texts in the same order; None if they cannot be compared.
    """
    if best is None or len(best) != len(last):
        return None
    sign = 1 if larger_is_better else -1
    differences = [
        sign * (best_score - last_score) for best_score, last_score in zip(best, last, strict=True)
    ]
    error = standard_error(differences)
    behind = sum(differences) / max(len(differences), 1)
    if error is None or not math.isfinite(behind):
        return None
    return {"behind": behind, "error": error}


def choose(numbers: Mapping[str, Any], newest: int, schedule: Schedule) -> Choice:
    """The checkpoint to use, according to the (untrusted) `state.json` of the newest one."""
    best, last = (_record(numbers.get(name)) for name in ("best", "last"))
    if best is None:
        return Choice(newest, "the last checkpoint; no evaluation was recorded")
    step = best["step"]
    if step == newest:
        return Choice(newest, "the last checkpoint, and the best on its validation data")
    best_one = "the best on its validation data"
    if last is None or last["step"] != newest:
        return Choice(
            step, f"{best_one}; the last, step {newest}, was not compared with it", newest
        )
    behind, error = (_number(last.get(name)) for name in ("behind", "error"))
    if behind is None or error is None:
        return Choice(
            step, f"{best_one}; the last, step {newest}, was not compared with it", newest
        )
    if behind <= 0:
        return Choice(newest, f"the last checkpoint, as good on its validation data as step {step}")
    if not (last.get("finished") is True and comes_down(schedule)):
        why = "the learning rate had not decayed at the last"
        return Choice(step, f"{best_one}; {why}, step {newest}", newest)
    figures = f"{behind:.4f}, and two standard errors of that are {SIGNIFICANT * error:.4f}"
    if behind > SIGNIFICANT * error:
        return Choice(step, f"{best_one}; the last, step {newest}, is worse by {figures}", newest)
    return Choice(newest, f"the last checkpoint; it is worse than step {step} by {figures}", step)


def comes_down(schedule: Schedule) -> bool:
    """Whether a schedule ends at a low learning rate."""
    return not isinstance(schedule, Constant | InverseSqrt) and schedule.final <= LOW


def _record(value: Any) -> Mapping[str, Any] | None:
    valid = isinstance(value, dict) and type(value.get("step")) is int and value["step"] >= 0
    return value if valid else None


def _number(value: Any) -> float | None:
    valid = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if valid else None
