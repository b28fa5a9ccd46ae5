"""Regression: a model learns a number for each text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from clearformer import data
from clearformer.config import Regressor, RunConfig
from clearformer.data.rows import Targets
from clearformer.tasks.baseline import AnyBaseline, numbers_baseline
from clearformer.tasks.labelled_texts import LoadedTexts, TextTask
from clearformer.tasks.regression_report import NumberPrediction, RegressionReport, report
from clearformer.tasks.target import Target
from clearformer.tasks.task import LoadedTask


@dataclass(frozen=True)
class PredictedNumber:
    """A text with the number that is predicted for it, in the unit of the training data."""

    text: str
    value: float
    cut: bool  # whether the text was longer than the model's context and was truncated

    @property
    def texts(self) -> dict[str, str]:
        """What the number is of, by column."""
        return {"text": self.text}

    @property
    def prediction(self) -> NumberPrediction:
        """As a row of a table needs it."""
        return NumberPrediction(self.value)

    def line(self, threshold: float | None = None) -> str:
        """The number, for a terminal."""
        return f"{self.value:.6g}"

    def answer(self, threshold: float | None = None) -> dict[str, object]:
        """As JSON."""
        return {"predicted": self.value}


class NumberTarget(Target):
    """A number; the model learns it with mean 0 and standard deviation 1."""

    form: ClassVar[data.LabelForm] = data.NUMBERS

    def complete(self, head: Any, table: data.Table) -> Any:
        assert isinstance(head, Regressor)
        values = numbers(table)
        if len(set(values.tolist())) < 2:
            raise ValueError(
                f"{table.name}: every number is {values[0]:g}, so that there is nothing to learn"
            )
        return replace(head, mean=float(values.mean()), std=float(values.std()))

    def names(self, config: RunConfig, name: object = None) -> tuple[str, ...]:
        config.model.require_verb("predict", name)
        return ()

    def encode(self, table: data.Table, head: Any) -> Targets:
        return ((numbers(table) - head.mean) / head.std).astype(np.float32)

    def outputs(self, logits: Tensor) -> Tensor:
        return logits  # the head gives numbers in their own unit

    def report(self, outputs: Tensor, targets: Tensor, head: Any) -> RegressionReport:
        labels = targets.double().numpy() * head.std + head.mean
        return report(outputs[:, 0].double().numpy(), labels, head.std)

    def result(
        self, texts: Sequence[str], outputs: Sequence[float], config: RunConfig, cut: bool
    ) -> PredictedNumber:
        return PredictedNumber(texts[0], outputs[0], cut)

    def chance(self, head: Any) -> float:
        return 1.0  # the squared error of the mean, in standard deviations

    def baseline(self, training: data.Table, validation: data.Table) -> AnyBaseline | None:
        return numbers_baseline(training, validation)


def numbers(table: data.Table) -> Any:
    """The labels of a table as numbers."""
    return np.array([float(label) for label in table.labels or ()], dtype=np.float64)


NUMBERS = NumberTarget()


class NumberedTexts(LoadedTexts):
    """A table of texts with a number each."""

    target: ClassVar[Target] = NUMBERS


class RegressionTask(TextTask):
    """Predict a number for a text."""

    target: ClassVar[Any] = NUMBERS
    metric: ClassVar[str] = "rmse"
    loaded: ClassVar[type[LoadedTask] | None] = NumberedTexts
    metrics: ClassVar[dict[str, bool]] = {
        "rmse": False,
        "mae": False,
        "r2": True,
        "spearman": True,
        "loss": False,
    }
