"""Predictions as rows of a table: every column of the data, and what the model says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

PREDICTED, PROBABILITY, CORRECT = "predicted", "probability", "correct"


@dataclass(frozen=True)
class Prediction:
    """What a classifier says about a text; `label` is the right answer, if that is known."""

    probabilities: Mapping[str, float]
    label: str | None = None

    @property
    def predicted(self) -> str:
        return max(self.probabilities, key=lambda name: self.probabilities[name])

    @property
    def probability(self) -> float:
        return self.probabilities[self.predicted]

    @property
    def correct(self) -> bool | None:
        return None if self.label is None else self.predicted == self.label

    @property
    def regret(self) -> float:
        """How wrong it is: the probability that it gives to a wrong class beyond the right one."""
        if self.label is None or self.correct:
            return -1.0
        return self.probability - self.probabilities.get(self.label, 0.0)

    def cells(self, *, probabilities: bool, threshold: float | None) -> dict[str, object]:
        unsure = threshold is not None and self.probability < threshold
        return {
            PREDICTED: "" if unsure else self.predicted,
            PROBABILITY: round(self.probability, 6),
            **({} if self.correct is None else {CORRECT: self.correct}),
            **(shares(self.probabilities) if probabilities else {}),
        }


class AnyPrediction(Protocol):
    """What a model says about a text, as columns of a table."""

    @property
    def regret(self) -> float:
        """How wrong it is; below 0 for a right answer, or without one to compare with."""
        ...

    def cells(self, *, probabilities: bool, threshold: float | None) -> dict[str, object]:
        """The columns that are added to a row."""
        ...


def shares(probabilities: Mapping[str, float]) -> dict[str, object]:
    """A column for the probability of each class."""
    return {f"p({name})": round(share, 6) for name, share in probabilities.items()}


def prediction_rows(
    records: Sequence[Mapping[str, object]],
    predictions: Sequence[AnyPrediction | None],
    *,
    probabilities: bool = False,
    worst_first: bool = False,
    threshold: float | None = None,
) -> list[dict[str, object]]:
    """Every record with all its columns, then those of its prediction.

    A class is `predicted` with its `probability` and, where the right answer is known, `correct`;
    a record without a prediction (None) has empty fields, and one below `threshold` an empty
    `predicted`. `probabilities` adds a column for each class, `worst_first` puts the most
    confident mistakes first.
    """
    columns = list(dict.fromkeys(name for record in records for name in record))
    found = [
        {} if each is None else each.cells(probabilities=probabilities, threshold=threshold)
        for each in predictions
    ]
    added = list(dict.fromkeys(name for cells in found for name in cells)) or [PREDICTED]
    free = {name: _free(name, columns) for name in added}
    rows: list[dict[str, object]] = [
        {name: _cell(record.get(name)) for name in columns}
        | {free[name]: cells.get(name, "") for name in added}
        for record, cells in zip(records, found, strict=True)
    ]
    if worst_first:
        regrets = [-2.0 if each is None else each.regret for each in predictions]
        rows = [rows[i] for i in sorted(range(len(rows)), key=lambda i: -regrets[i])]
    return rows


def _free(name: str, columns: Sequence[str]) -> str:
    """A name for a new column that the table does not have yet."""
    return name if name not in columns else f"{name} (model)"


def _cell(value: object) -> object:
    return "" if value is None else value
