"""Report of a classifier on labelled texts: metrics, tables, thresholds, predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.escape import escape_line
from clearformer.tasks.class_statistics import Threshold, bootstrap, macro_f1, thresholds
from clearformer.tasks.measured import standard_error
from clearformer.tasks.predictions import Prediction
from clearformer.tasks.text_report import TextReport, by_class_lines

UNSURE = 0.02  # standard error of an accuracy that tells little


@dataclass(frozen=True)
class ClassReport(TextReport):
    """A classifier on labelled rows."""

    names: tuple[str, ...]
    confusion: Tensor  # (classes, classes): a row for each true class, a column for each guess
    loss: float
    calibration: float  # mean gap of confidence and accuracy
    probabilities: Tensor | None = None  # (texts, classes)
    labels: Tensor | None = None  # (texts,)

    @property
    def accuracy(self) -> float:
        return float(self.confusion.diagonal().sum() / self.confusion.sum())

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes, rare ones counting as much as frequent ones."""
        return float(macro_f1(self.confusion.numpy()))

    @property
    def metrics(self) -> dict[str, float]:
        return {"loss": self.loss, "accuracy": self.accuracy, "macro_f1": self.macro_f1}

    def scores(self, metric: str) -> Sequence[float]:
        """The metric of each text, if it is a mean over texts; macro F1 is none."""
        if metric == "loss":
            assert self.probabilities is not None
            assert self.labels is not None
            true_class = self.probabilities.gather(1, self.labels[:, None])[:, 0]
            return (-true_class.clamp(min=1e-12).log()).tolist()
        return self.right if metric == "accuracy" else ()

    @property
    def never_predicted(self) -> list[str]:
        """Classes that have texts, but are the guess for none."""
        guessed, occurs = self.confusion.sum(0).tolist(), self.confusion.sum(1).tolist()
        return [name for name, g, o in zip(self.names, guessed, occurs, strict=True) if o and not g]

    def predictions(self) -> list[Prediction]:
        """What the model says about each text."""
        assert self.probabilities is not None
        assert self.labels is not None
        pairs = zip(self.probabilities.tolist(), self.labels.tolist(), strict=True)
        return [
            Prediction(dict(zip(self.names, row, strict=True)), self.names[label])
            for row, label in pairs
        ]

    def remarks(self) -> list[str]:
        found = []
        if missing := self.never_predicted:
            names = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
            found.append(
                f"{names} {'are' if len(missing) > 1 else 'is'} never predicted on the validation "
                f"texts: give more rows of it, or --class-weights balanced"
            )
        error = standard_error(self.right)
        if error is not None and error > UNSURE:
            found.append(
                f"the {self.total:,} validation texts are few: the accuracy is known to "
                f"about ± {2 * error:.2f}; --validation-fraction holds more back"
            )
        return found

    def document(self) -> dict[str, object]:
        intervals = bootstrap(self.confusion.numpy())
        return {
            **self.metrics,
            "calibration": self.calibration,
            "texts": self.total,
            "intervals": {name: [each.low, each.high] for name, each in intervals.items()},
            "classes": [
                dict(zip(("name", "texts", "precision", "recall", "f1"), row, strict=True))
                for row in self.by_class()
            ],
            "confusion": self.confusion.tolist(),
            "thresholds": [vars(each) for each in self._thresholds()],
            "protocol": self.protocol,
        }

    def _thresholds(self) -> list[Threshold]:
        if (self.precision is None and self.recall is None) or self.probabilities is None:
            return []
        assert self.labels is not None
        return thresholds(
            self.probabilities,
            self.labels,
            self.names,
            precision=self.precision,
            recall=self.recall,
        )

    def by_class(self) -> list[tuple[str, int, float, float, float]]:
        """Name, rows, precision, recall and F1 of each class."""
        right = self.confusion.diagonal().double()
        precision = right / self.confusion.sum(0).clamp(min=1)
        recall = right / self.confusion.sum(1).clamp(min=1)
        f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-12)
        rows = self.confusion.sum(1)
        return [
            (name, int(rows[i]), float(precision[i]), float(recall[i]), float(f1[i]))
            for i, name in enumerate(self.names)
        ]

    def lines(self, in_float32: ClassReport | None = None) -> list[str]:
        lines = []
        if in_float32 is not None:
            lines.append(f"in float32   {in_float32.accuracy:.4f}, loss {in_float32.loss:.4f}")
        error = standard_error(self.right)
        sure = "" if error is None else f", standard error {error:.4f}"
        intervals = bootstrap(self.confusion.numpy())
        interval = f", {intervals['accuracy']}" if error is not None else ""
        lines.append(f"accuracy     {self.accuracy:.4f} on {self.total:,} texts{sure}{interval}")
        lines.append(f"macro F1     {self.macro_f1:.4f}, {intervals['macro_f1']} (bootstrap)")
        if self.left_out:
            share = self.accuracy * self.total / (self.total + self.left_out)
            lines.append(
                f"             {share:.4f} with the {self.left_out:,} left out counted as wrong"
            )
        return [
            *lines,
            f"loss         {self.loss:.4f}",
            f"calibration  {self.calibration:.4f} (mean gap of confidence and accuracy)",
            f"protocol: {self.protocol}",
            *self._tables(),
            *self.threshold_lines(self._thresholds()),
        ]

    def _tables(self) -> list[str]:
        """Precision, recall and F1 of each class, and the confusion matrix."""
        shown = [escape_line(name) for name in self.names]
        width = max(len(name) for name in (*shown, "class"))
        lines = by_class_lines(self.names, self.by_class(), "class")
        cell = max(width, 7)
        lines += ["", "confusion: a row for each true class, a column for each guess"]
        lines.append(" " * width + "".join(f" {name:>{cell}}" for name in shown))
        for name, row in zip(shown, self.confusion.tolist(), strict=True):
            lines.append(f"{name:{width}}" + "".join(f" {count:>{cell},}" for count in row))
        return lines


def report(probabilities: Tensor, labels: Tensor, names: tuple[str, ...]) -> ClassReport:
    """Compare guesses (rows, classes) with labels (rows,)."""
    classes = len(names)
    confidence, guess = probabilities.max(dim=1)
    confusion = torch.zeros(classes, classes, dtype=torch.long)
    confusion.index_put_((labels, guess), torch.ones_like(labels), accumulate=True)
    true_class = probabilities.gather(1, labels[:, None])[:, 0]
    return ClassReport(
        names,
        confusion,
        float(-true_class.clamp(min=1e-12).log().mean()),
        _calibration_error(confidence, guess == labels),
        probabilities,
        labels,
        right=(guess == labels).float().tolist(),
        total=len(labels),
    )


def _calibration_error(confidence: Tensor, right: Tensor, bins: int = 10) -> float:
    """Expected calibration error: mean gap of confidence and accuracy over bins of confidence."""
    bin_of = (confidence * bins).long().clamp(max=bins - 1)
    total = 0.0
    for index in range(bins):
        inside = bin_of == index
        if inside.any():
            gap = (confidence[inside].mean() - right[inside].float().mean()).abs()
            total += float(gap * inside.float().mean())
    return total
