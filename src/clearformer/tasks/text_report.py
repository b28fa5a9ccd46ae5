"""Base of the reports on texts of a table: its rows with predictions, and a paired comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clearformer import data
from clearformer.escape import escape_line
from clearformer.table_options import TableFormat
from clearformer.tasks.class_statistics import PairedErrors, PairedTest, Threshold, paired_test
from clearformer.tasks.predictions import AnyPrediction, prediction_rows
from clearformer.tasks.task import Report


@dataclass(frozen=True, kw_only=True)
class TextReport(Report):
    """A model on the rows of a table."""

    total: int = 0
    cut: int = 0
    left_out: int = 0  # rows with unknown labels
    protocol: str = ""
    right: Sequence[float] = ()  # 1 for each text with the right answer, 0 for the others
    table: data.Table | None = None  # the texts
    format: TableFormat = TableFormat()  # how the file of the table is read
    precision: float | None = None  # goal of the thresholds, or
    recall: float | None = None

    def scores(self, metric: str) -> Sequence[float]:
        """The metric of each text, if it is a mean over texts."""
        return ()

    def remarks(self) -> list[str]:
        """What a colleague would notice."""
        return []

    def predictions(self) -> Sequence[AnyPrediction]:
        """What the model says about each text."""
        raise NotImplementedError

    def compared_with(self, other: Any) -> PairedTest | PairedErrors:
        """Test the difference to another model on the same texts."""
        return paired_test(self.right, other.right)

    def table_rows(
        self, *, probabilities: bool = False, worst_first: bool = False
    ) -> list[dict[str, object]]:
        """Every text with all columns of its table, and what the model says about it.

        `probabilities` adds a column for each class; `worst_first` sorts by how wrong it is.
        """
        return prediction_rows(
            self._records(),
            self.predictions(),
            probabilities=probabilities,
            worst_first=worst_first,
        )

    def summary(self) -> str:
        """How many texts are wrong, for the end of a table of predictions."""
        wrong = sum(not right for right in self.right)
        return f"{self.total:,} texts, {wrong:,} of them wrong"

    def _records(self) -> list[dict[str, object]]:
        table = self.table
        assert table is not None
        if table.rows is not None:
            _, records = data.all_records(table.name, self.format)
            return [records[row] for row in table.rows]
        pairs = zip(table.texts, table.labels or (), strict=True)
        return [{"text": text, "label": label} for text, label in pairs]

    def threshold_lines(self, found: Sequence[Threshold]) -> list[str]:
        """The threshold of each class for the precision or recall that was asked for."""
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


def by_class_lines(
    names: Sequence[str], figures: Sequence[tuple[str, int, float, float, float]], what: str
) -> list[str]:
    """Texts, precision, recall and F1 of each class as a table; `what` is the first heading."""
    shown = [escape_line(name) for name in names]
    width = max(len(name) for name in (*shown, what))
    lines = ["", f"{what:{width}}   texts  precision  recall      F1"]
    for name, (_, count, precision, recall, f1) in zip(shown, figures, strict=True):
        # Recall and F1 of a class without texts are undefined, not zero.
        rest = f"{recall:.4f}  {f1:.4f}" if count else "     -       -"
        lines.append(f"{name:{width}} {count:7,}     {precision:.4f}  {rest}")
    return lines
