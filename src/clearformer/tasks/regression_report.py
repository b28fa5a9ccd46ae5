"""Report of a regression model: RMSE, MAE, R2 and Spearman's rank correlation, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearformer.tasks.class_statistics import Interval, PairedErrors, paired_errors, resampled
from clearformer.tasks.predictions import PREDICTED
from clearformer.tasks.text_report import TextReport

ERROR = "error"  # column of a table: predicted minus the right number
FEW = 100  # validation texts that tell little
Values = NDArray[np.float64]


@dataclass(frozen=True)
class NumberPrediction:
    """A predicted number; `label` is the right one, if that is known."""

    value: float
    label: float | None = None

    @property
    def regret(self) -> float:
        """The size of the error."""
        return -1.0 if self.label is None else abs(self.value - self.label)

    def cells(self, *, probabilities: bool, threshold: float | None) -> dict[str, object]:
        known = {} if self.label is None else {ERROR: _rounded(self.value - self.label)}
        return {PREDICTED: _rounded(self.value), **known}


@dataclass(frozen=True)
class RegressionReport(TextReport):
    """A regression model on rows with numbers."""

    predicted: Values  # (texts,), in the unit of the data
    labels: Values  # (texts,)
    std: float  # of the training data

    @property
    def errors(self) -> Values:
        return self.predicted - self.labels

    @property
    def metrics(self) -> dict[str, float]:
        loss = float(np.mean((self.errors / self.std) ** 2))
        return {"loss": loss, **figures(self.predicted, self.labels)}

    def scores(self, metric: str) -> Sequence[float]:
        squares = self.errors**2
        if metric == "mae":
            return np.abs(self.errors).tolist()
        if metric == "loss":
            return (squares / self.std**2).tolist()
        rmse = math.sqrt(squares.mean())
        if metric != "rmse" or not rmse:
            return ()
        # The first-order effect of each text on the root: their mean is the root itself.
        return (squares / (2 * rmse) + rmse / 2).tolist()

    def intervals(self) -> dict[str, Interval]:
        """Bootstrap intervals over texts."""
        return resampled(lambda rows: figures(self.predicted[rows], self.labels[rows]), self.total)

    def compared_with(self, other: Any) -> PairedErrors:
        return paired_errors(np.abs(self.errors), np.abs(other.errors))

    def predictions(self) -> list[NumberPrediction]:
        pairs = zip(self.predicted.tolist(), self.labels.tolist(), strict=True)
        return [NumberPrediction(value, label) for value, label in pairs]

    def summary(self) -> str:
        return f"{self.total:,} texts with their errors"

    def remarks(self) -> list[str]:
        found = []
        spread = float(np.std(self.labels))
        if self.total > 1 and self.metrics["rmse"] >= spread > 0:
            found.append(
                "it predicts no better than the mean of the validation numbers: train longer, "
                "give more rows, or the texts do not tell the number"
            )
        if self.total < FEW:
            found.append(
                f"the {self.total:,} validation texts are few; --validation-fraction holds more "
                f"back"
            )
        return found

    def lines(self, in_float32: RegressionReport | None = None) -> list[str]:
        lines, found, sure = [], self.metrics, self.intervals()
        if in_float32 is not None:
            lines.append(f"in float32   RMSE {in_float32.metrics['rmse']:.6g}")
        names = {"rmse": "RMSE", "mae": "MAE", "r2": "R2", "spearman": "Spearman"}
        for name, shown in names.items():
            digits = ".4f" if name in ("r2", "spearman") else ".6g"
            value = f"{found[name]:{digits}}" if math.isfinite(found[name]) else "undefined"
            interval = sure.get(name)
            between = f", {interval.shown(digits)}" if interval is not None else ""
            on = f" on {self.total:,} texts" if name == "rmse" else ""
            lines.append(f"{shown:12} {value}{on}{between}")
        spread = float(np.std(self.labels))
        return [
            *lines,
            f"{'':12} the numbers have mean {self.labels.mean():.6g} and standard deviation "
            f"{spread:.6g}; intervals by bootstrap",
            f"{'loss':12} {found['loss']:.4f} (squared error, in standard deviations of the "
            f"training data)",
            f"protocol: {self.protocol}",
        ]

    def document(self) -> dict[str, object]:
        finite = {n: v if math.isfinite(v) else None for n, v in self.metrics.items()}
        intervals = {name: [each.low, each.high] for name, each in self.intervals().items()}
        return {**finite, "texts": self.total, "intervals": intervals, "protocol": self.protocol}


def report(predicted: Values, labels: Values, std: float) -> RegressionReport:
    """Compare predicted numbers with the right ones: both (texts,)."""
    return RegressionReport(predicted, labels, std, total=len(labels))


def figures(predicted: Values, labels: Values) -> dict[str, float]:
    """RMSE, MAE, R2 and Spearman's rank correlation; NaN where one is undefined."""
    squares = (predicted - labels) ** 2
    spread = float(((labels - labels.mean()) ** 2).sum())
    return {
        "rmse": math.sqrt(squares.mean()),
        "mae": float(np.abs(predicted - labels).mean()),
        "r2": 1 - float(squares.sum()) / spread if spread else math.nan,
        "spearman": spearman(predicted, labels),
    }


def spearman(one: Values, other: Values) -> float:
    """Correlation of the ranks; equal numbers share the mean of their ranks."""
    first, second = ranks(one), ranks(other)
    first, second = first - first.mean(), second - second.mean()
    scale = math.sqrt(float((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / scale if scale else math.nan


def ranks(values: Values) -> Values:
    """The rank of each number from 1; equal ones share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place].astype(np.float64)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
