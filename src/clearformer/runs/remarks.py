"""Remarks on a finished run: what a colleague would notice in its metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clearformer.runs.metrics import read

if TYPE_CHECKING:
    from clearformer.runs.run import Run

WORSE = 1.05  # of the lowest validation loss, from which overfitting is reported
SPIKE = 2.0  # times the loss before, from which the learning rate is too high
LOSS = "validation_loss"
Row = Mapping[str, Any]


def remarks(run: Run) -> list[str]:
    """Sentences about overfitting, the learning rate, and what the task noticed."""
    try:
        rows = read(run.folder / "metrics.jsonl")
    except (ValueError, OSError):
        rows = []
    found = [overfitting(rows), rate_too_high(rows)]
    return [*(each for each in found if each is not None), *run.task.remarks()]


def overfitting(rows: Sequence[Row]) -> str | None:
    """Since which step the validation loss rises while the training loss falls."""
    evaluations = [r for r in rows if r["event"] == "evaluation" and _finite(r.get(LOSS))]
    if len(evaluations) < 3:
        return None
    best, last = min(evaluations, key=lambda row: row[LOSS]), evaluations[-1]
    if last[LOSS] <= WORSE * best[LOSS] or _train_loss(rows, last) >= _train_loss(rows, best):
        return None
    return (
        f"it overfits since step {best['step']}: the validation loss was {best[LOSS]:.4f} there "
        f"and is {last[LOSS]:.4f} at the end, while the training loss fell; train for less time, "
        f"stop early with --patience 2, or give more data"
    )


def _train_loss(rows: Sequence[Row], evaluation: Row) -> float:
    """The mean training loss of the 20 steps up to an evaluation."""
    losses = [
        row["train_loss"]
        for row in rows
        if row["event"] == "step"
        and row["step"] <= evaluation["step"]
        and _finite(row["train_loss"])
    ][-20:]
    return sum(losses) / len(losses) if losses else math.inf


def rate_too_high(rows: Sequence[Row]) -> str | None:
    """Whether the training loss has risen far above what it had reached."""
    steps = [r for r in rows if r["event"] == "step" and _finite(r.get("train_loss"))]
    if len(steps) < 40:
        return None
    lowest, worst = math.inf, None
    for first in range(0, len(steps) - 9, 10):
        mean = sum(row["train_loss"] for row in steps[first : first + 10]) / 10
        if mean > SPIKE * lowest and mean > lowest + 0.5 and worst is None:
            worst = (steps[first]["step"], lowest, mean)
        lowest = min(lowest, mean)
    if worst is None:
        return None
    step, before, after = worst
    rate = max(row.get("learning_rate", 0.0) for row in steps)
    return (
        f"the training loss jumped from {before:.3f} to {after:.3f} near step {step}: the learning "
        f"rate may be too high; try --learning-rate {rate / 3:.1g}"
    )


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
