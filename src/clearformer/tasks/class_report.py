"""Report of a classifier on labelled texts: metrics, tables, thresholds, predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer import data
from clearformer.escape import escape_line
from clearformer.table_options import TableFormat
from clearformer.tasks.class_statistics import Threshold, bootstrap, macro_f1, thresholds
from clearformer.tasks.measured import standard_error
from clearformer.tasks.predictions import Prediction, prediction_rows
from clearformer.tasks.task import Report


@dataclass(frozen=True)
class ClassReport(Report):
    """A classifier on labelled rows."""

    names: tuple[str, ...]
    confusion: Tensor  # (classes, classes): a row for each true class, a column for each guess
    loss: float
    calibration: float  # mean gap of confidence and accuracy
    right: Sequence[float] = ()  # 1 for each text with the right label, 0 for the others
    total: int = 0
    cut: int = 0
    left_out: int = 0  # rows with unknown labels
    protocol: str = ""
    probabilities: Tensor | None = None  # (texts, classes)
    labels: Tensor | None = None  # (texts,)
    table: data.Table | None = None  # the texts
    format: TableFormat = TableFormat()  # how the file of the table is read
    precision: float | None = None  # goal of the thresholds, or
    recall: float | None = None

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

    def table_rows(
        self, *, probabilities: bool = False, worst_first: bool = False
    ) -> list[dict[str, object]]:
        """Every text with all columns of its table, `predicted`, `probability` and `correct`.

        `probabilities` adds a column for each class; `worst_first` sorts by how wrong it is.
        """
        return prediction_rows(
            self._records(),
            self.predictions(),
            probabilities=probabilities,
            worst_first=worst_first,
        )

    def _records(self) -> list[dict[str, object]]:
        table = self.table
        assert table is not None
        if table.rows is not None:
            _, records = data.all_records(table.name, self.format)
            return [records[row] for row in table.rows]
        pairs = zip(table.texts, table.labels or (), strict=True)
        return [{"text": text, "label": label} for text, label in pairs]

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
            *self._threshold_lines(),
        ]

    def _threshold_lines(self) -> list[str]:
        """The threshold of each class for the precision or recall that was asked for."""
        found = self._thresholds()
        if not found:
            return []
        goal = f"precision {self.precision:g}" if self.precision else f"recall {self.recall:g}"
        width = max(len(escape_line(each.name)) for each in found)
        lines = ["", f"thresholds for a {goal}, chosen on these texts:"]
        for each in found:
            name = f"{escape_line(each.name):{width}}"
            if each.probability is None:
                lines.append(f"{name}  none reaches it")
            else:
                lines.append(
                    f"{name}  probability {each.probability:.4f}: precision {each.precision:.4f}, "
                    f"recall {each.recall:.4f}"
                )
        return lines

    def _tables(self) -> list[str]:
        """Precision, recall and F1 of each class, and the confusion matrix."""
        shown = [escape_line(name) for name in self.names]
        width = max(len(name) for name in (*shown, "class"))
        lines = ["", f"{'class':{width}}   texts  precision  recall      F1"]
        for name, (_, count, precision, recall, f1) in zip(shown, self.by_class(), strict=True):
            # Recall and F1 of a class without texts are undefined, not zero.
            rest = f"{recall:.4f}  {f1:.4f}" if count else "     -       -"
            lines.append(f"{name:{width}} {count:7,}     {precision:.4f}  {rest}")
        cell = max(width, 7)
        lines += ["", "confusion: a row for each true class, a column for each guess"]
        lines.append(" " * width + "".join(f" {name:>{cell}}" for name in shown))
        for name, row in zip(shown, self.confusion.tolist(), strict=True):
            lines.append(f"{name:{width}}" + "".join(f" {count:>{cell},}" for count in row))
        return lines


def class_report(probabilities: Tensor, rows: data.Rows) -> ClassReport:
    """Compare guesses (rows, classes) with the labels of the rows."""
    return report(probabilities, torch.from_numpy(rows.labels), rows.names)


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
        (guess == labels).float().tolist(),
        len(labels),
        probabilities=probabilities,
        labels=labels,
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
