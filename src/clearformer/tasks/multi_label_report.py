"""Report of a multi-label classifier: F1 over all labels, each label, and exact matches.

Axes: C labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from clearformer.tasks.class_statistics import (
    Interval,
    Threshold,
    resampled,
    thresholds,
)
from clearformer.tasks.predictions import CORRECT, PREDICTED, PROBABILITY, shares
from clearformer.tasks.text_report import TextReport, by_class_lines

HALF = 0.5  # the probability from which a label is given
FEW = 100  # validation texts that tell little


@dataclass(frozen=True)
class LabelSetPrediction:
    """What a model says about a text; `labels` is the right answer, if that is known."""

    probabilities: Mapping[str, float]
    labels: tuple[str, ...] | None = None

    def chosen(self, threshold: float | None = None) -> tuple[str, ...]:
        """The labels with at least this probability."""
        least = HALF if threshold is None else threshold
        return tuple(name for name, share in self.probabilities.items() if share >= least)

    @property
    def probability(self) -> float:
        """That exactly the likeliest labels are right, if labels are independent."""
        return math.prod(max(share, 1 - share) for share in self.probabilities.values())

    @property
    def regret(self) -> float:
        """The mean error of the probabilities, for a wrong set of labels."""
        if self.labels is None or set(self.chosen()) == set(self.labels):
            return -1.0
        errors = (abs(share - (n in self.labels)) for n, share in self.probabilities.items())
        return sum(errors) / len(self.probabilities)

    def cells(self, *, probabilities: bool, threshold: float | None) -> dict[str, object]:
        chosen = self.chosen(threshold)
        known = {} if self.labels is None else {CORRECT: set(chosen) == set(self.labels)}
        return {
            PREDICTED: "; ".join(chosen),
            PROBABILITY: round(self.probability, 6),
            **known,
            **(shares(self.probabilities) if probabilities else {}),
        }


@dataclass(frozen=True)
class MultiLabelReport(TextReport):
    """A multi-label classifier on rows with labels."""

    names: tuple[str, ...]
    probabilities: Tensor  # (texts, C)
    labels: Tensor  # (texts, C): 1 or 0
    loss: float

    @property
    def counts(self) -> NDArray[np.int64]:
        """True positives, guesses and texts of each label, for each text: (texts, 3, C)."""
        guesses, labels = (self.probabilities >= HALF).numpy(), (self.labels > 0).numpy()
        return np.stack((guesses & labels, guesses, labels), axis=1).astype(np.int64)

    @property
    def metrics(self) -> dict[str, float]:
        totals = self.counts.sum(0)
        exact = sum(self.right) / max(self.total, 1)
        return {
            "loss": self.loss,
            "micro_f1": float(micro_f1(totals)),
            "macro_f1": float(macro_f1(totals)),
            "subset_accuracy": exact,
        }

    def scores(self, metric: str) -> Sequence[float]:
        if metric == "subset_accuracy":
            return self.right
        if metric == "loss":
            return _losses(self.probabilities, self.labels).mean(1).tolist()
        if metric != "micro_f1":
            return ()
        # The first-order effect of each text on a ratio of sums: their mean is the ratio itself.
        right, guessed, labelled = self.counts.sum(-1).T
        either = (guessed + labelled).astype(np.float64)
        mean = either.mean()
        if not mean:
            return ()
        f1 = 2 * right.mean() / mean
        return (f1 + (2 * right - f1 * either) / mean).tolist()

    def intervals(self) -> dict[str, Interval]:
        """Bootstrap intervals over texts."""
        counts, right = self.counts, np.asarray(self.right)

        def figures(rows: NDArray[np.int64]) -> dict[str, float]:
            totals = counts[rows].sum(0)
            micro, macro = float(micro_f1(totals)), float(macro_f1(totals))
            exact = float(right[rows].mean())
            return {"micro_f1": micro, "macro_f1": macro, "subset_accuracy": exact}

        return resampled(figures, self.total)

    def by_label(self) -> list[tuple[str, int, float, float, float]]:
        """Name, texts, precision, recall and F1 of each label."""
        right, guessed, labelled = self.counts.sum(0).astype(np.float64)
        precision = right / np.maximum(guessed, 1)
        recall = right / np.maximum(labelled, 1)
        f1 = 2 * right / np.maximum(guessed + labelled, 1)
        figures = zip(self.names, labelled, precision, recall, f1, strict=True)
        return [(name, int(n), float(p), float(r), float(f)) for name, n, p, r, f in figures]

    def remarks(self) -> list[str]:
        found = []
        right_guessed = self.counts.sum(0)
        missing = [
            name
            for name, guessed, labelled in zip(self.names, *right_guessed[1:], strict=True)
            if labelled and not guessed
        ]
        if missing:
            names = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
            found.append(
                f"{names} {'are' if len(missing) > 1 else 'is'} never predicted on the validation "
                f"texts: give more rows of it, --class-weights balanced, or classify with a lower "
                f"--threshold"
            )
        if self.total < FEW:
            found.append(
                f"the {self.total:,} validation texts are few; --validation-fraction holds more "
                f"back"
            )
        return found

    def predictions(self) -> list[LabelSetPrediction]:
        pairs = zip(self.probabilities.tolist(), self.labels.tolist(), strict=True)
        return [
            LabelSetPrediction(
                dict(zip(self.names, row, strict=True)),
                tuple(name for name, has in zip(self.names, labels, strict=True) if has),
            )
            for row, labels in pairs
        ]

    def lines(self, in_float32: MultiLabelReport | None = None) -> list[str]:
        lines, figures, sure = [], self.metrics, self.intervals()
        if in_float32 is not None:
            before = in_float32.metrics
            lines.append(
                f"in float32   micro F1 {before['micro_f1']:.4f}, loss {before['loss']:.4f}"
            )
        lines += [
            f"micro F1     {figures['micro_f1']:.4f} on {self.total:,} texts, {sure['micro_f1']} "
            f"(bootstrap)",
            f"macro F1     {figures['macro_f1']:.4f}, {sure['macro_f1']}",
            f"all right    {figures['subset_accuracy']:.4f} of the texts, "
            f"{sure['subset_accuracy']}",
            f"loss         {self.loss:.4f} (binary cross entropy of a label)",
        ]
        if self.left_out:
            lines.append(f"             {self.left_out:,} rows with unknown labels are left out")
        return [
            *lines,
            f"protocol: {self.protocol}",
            *by_class_lines(self.names, self.by_label(), "label"),
            *self.threshold_lines(self._thresholds()),
        ]

    def document(self) -> dict[str, object]:
        heading = ("name", "texts", "precision", "recall", "f1")
        return {
            **self.metrics,
            "texts": self.total,
            "intervals": {name: [each.low, each.high] for name, each in self.intervals().items()},
            "labels": [dict(zip(heading, row, strict=True)) for row in self.by_label()],
            "thresholds": [vars(each) for each in self._thresholds()],
            "protocol": self.protocol,
        }

    def _thresholds(self) -> list[Threshold]:
        if self.precision is None and self.recall is None:
            return []
        goal = {"precision": self.precision, "recall": self.recall}
        return thresholds(self.probabilities, self.labels, self.names, **goal)


def micro_f1(totals: NDArray[np.int64]) -> NDArray[np.float64]:
    """F1 over all decisions, from true positives, guesses and texts of each label: (3, C)."""
    right, guessed, labelled = totals.sum(-1).astype(np.float64)
    return 2 * right / np.maximum(guessed + labelled, 1)


def macro_f1(totals: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean F1 of the labels that occur or are guessed: (3, C)."""
    right, guessed, labelled = totals.astype(np.float64)
    either = guessed + labelled
    f1 = 2 * right / np.maximum(either, 1)
    return f1.sum(-1) / np.maximum((either > 0).sum(-1), 1)


def report(probabilities: Tensor, labels: Tensor, names: tuple[str, ...]) -> MultiLabelReport:
    """Compare probabilities with labels of 1 and 0: both (texts, C)."""
    exact = ((probabilities >= HALF) == (labels > 0)).all(dim=1)
    return MultiLabelReport(
        names,
        probabilities,
        labels,
        float(_losses(probabilities, labels).mean()),
        right=exact.float().tolist(),
        total=len(labels),
    )


def _losses(probabilities: Tensor, labels: Tensor) -> Tensor:
    clamped = probabilities.double().clamp(1e-12, 1 - 1e-12)
    return F.binary_cross_entropy(clamped, labels.double(), reduction="none")  # (texts, C)
