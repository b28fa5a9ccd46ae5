"""Paired comparison of two models on the same texts: classes, labels, numbers or pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clearformer.runs.contamination import lineage
from clearformer.runs.contamination import notes as contamination_notes
from clearformer.runs.evaluate_model import Evaluation, Evaluator, Say
from clearformer.tasks.class_statistics import PairedErrors, PairedTest
from clearformer.tasks.registry import task_of_run
from clearformer.tasks.task import EvaluationData, EvaluationRequest
from clearformer.tasks.text_report import TextReport

SPELLED = {"subset_accuracy": "all right", "rmse": "RMSE", "mae": "MAE", "r2": "R2"}
IN_UNITS = ("rmse", "mae")  # metrics in the unit of the data


@dataclass(frozen=True)
class Comparison:
    """A second model beside the first, on the same texts."""

    name: str
    report: TextReport
    test: PairedTest | PairedErrors

    def lines(self) -> list[str]:
        figures = [
            f"{_shown(name):12} {value:{'.6g' if name in IN_UNITS else '.4f'}}"
            for name, value in self.report.metrics.items()
        ]
        return ["", f"second       {self.name}", *figures, *self.test.lines()]

    def document(self) -> dict[str, object]:
        return {"run": self.name, **self.report.metrics, **self.test.document()}


def _shown(name: str) -> str:
    """A metric as reports spell it."""
    return SPELLED.get(name, name.replace("_", " ").replace("f1", "F1"))


def compare(
    first: Evaluation, second: Evaluator, prepared: EvaluationData, note: Say
) -> Comparison:
    """Measure `second` on the texts that `first` was measured on, and test the difference."""
    one, other = prepared.request.config.model, second.config.model
    if (one.head.text_task, one.head.two_texts) != (other.head.text_task, other.head.two_texts):
        raise ValueError(
            f"{second.name} is {other.noun}, but the first run is {one.noun}: compare runs of the "
            f"same task"
        )
    task = task_of_run(second.config)
    options = replace(prepared.request.options, unknown_label="refuse")
    request = EvaluationRequest(second.config, second.tokenizer, options, second.places)
    again = task.prepare_same(request, prepared)
    report = task.measure(second.model, again)
    if second.checkpoint is not None:
        known = lineage(second.checkpoint, second.config)
        for each in contamination_notes(known, again.material, second.places, held_back=False):
            note(f"{second.name}: {each}")
    before = first.report
    assert isinstance(before, TextReport)
    return Comparison(str(second.name), report, before.compared_with(report))
