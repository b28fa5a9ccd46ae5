"""Paired comparison of two classifiers on the same texts."""

from __future__ import annotations

from dataclasses import dataclass

from clearformer import data
from clearformer.runs.contamination import lineage
from clearformer.runs.contamination import notes as contamination_notes
from clearformer.runs.evaluate_model import Evaluation, Evaluator, Say
from clearformer.tasks.class_report import ClassReport, class_report
from clearformer.tasks.class_statistics import PairedTest, paired_test
from clearformer.tasks.classification import class_names, predict
from clearformer.tasks.task import EvaluationData


@dataclass(frozen=True)
class Comparison:
    """A second classifier beside the first, on the same texts."""

    name: str
    report: ClassReport
    test: PairedTest

    def lines(self) -> list[str]:
        return [
            "",
            f"second       {self.name}",
            f"accuracy     {self.report.accuracy:.4f}",
            f"macro F1     {self.report.macro_f1:.4f}",
            *self.test.lines(),
        ]

    def document(self) -> dict[str, object]:
        test = self.test
        return {
            "run": self.name,
            **self.report.metrics,
            "difference": test.difference,
            "interval": [test.interval.low, test.interval.high],
            "first_only": test.first_only,
            "second_only": test.second_only,
            "p_value": test.p_value,
        }


def compare(
    first: Evaluation, second: Evaluator, prepared: EvaluationData, note: Say
) -> Comparison:
    """Measure `second` on the texts that `first` was measured on, and test the difference."""
    _, _, table = prepared.content
    names = class_names(second.config, second.name)
    table = table.with_labels_of(names)
    rows = data.encode_rows(table, second.tokenizer, names)
    report = class_report(predict(second.model, rows, second.config), rows)
    if second.checkpoint is not None:
        known = lineage(second.checkpoint, second.config)
        for each in contamination_notes(known, table.texts, second.places, held_back=False):
            note(f"{second.name}: {each}")
    before = first.report
    assert isinstance(before, ClassReport)
    return Comparison(str(second.name), report, paired_test(before.right, report.right))
