"""Predictions as rows of a table: every column of the data, and what the model says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


def prediction_rows(
    records: Sequence[Mapping[str, object]],
    predictions: Sequence[Prediction | None],
    *,
    probabilities: bool = False,
    worst_first: bool = False,
    threshold: float | None = None,
) -> list[dict[str, object]]:
    """Every record with all its columns, then `predicted`, `probability` and, where the right
    answer is known, `correct`.

    A record without a prediction (None), or with one below `threshold`, has an empty `predicted`.
    `probabilities` adds a column for each class, `worst_first` puts the most confident mistakes
    first.
    """
    names = next((list(each.probabilities) for each in predictions if each is not None), [])
    columns = list(dict.fromkeys(name for record in records for name in record))
    with_answer = any(each is not None and each.label is not None for each in predictions)
    rows = []
    for record, found in zip(records, predictions, strict=True):
        row: dict[str, object] = {name: _cell(record.get(name)) for name in columns}
        unsure = found is None or (threshold is not None and found.probability < threshold)
        added: dict[str, object] = {
            PREDICTED: "" if found is None or unsure else found.predicted,
            PROBABILITY: "" if found is None else round(found.probability, 6),
        }
        if with_answer:
            added[CORRECT] = "" if found is None or found.correct is None else found.correct
        if probabilities:
            for name in names:
                share = "" if found is None else round(found.probabilities[name], 6)
                added[f"p({name})"] = share
        rows.append(row | {_free(name, columns): value for name, value in added.items()})
    if worst_first:
        regrets = [-2.0 if each is None else each.regret for each in predictions]
        rows = [rows[i] for i in sorted(range(len(rows)), key=lambda i: -regrets[i])]
    return rows


def _free(name: str, columns: Sequence[str]) -> str:
    """A name for a new column that the table does not have yet."""
    return name if name not in columns else f"{name} (model)"


def _cell(value: object) -> object:
    return "" if value is None else value
