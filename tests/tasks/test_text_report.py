"""Reports on texts: rows of their table, thresholds, figures of each class."""

from dataclasses import replace

import torch

from clearformer.data import Table
from clearformer.tasks.class_report import report
from clearformer.tasks.class_statistics import Threshold
from clearformer.tasks.text_report import TextReport, by_class_lines

FIGURES = [("a", 2, 1.0, 0.5, 0.667), ("b", 0, 0.0, 0.0, 0.0)]


def test_a_report_without_a_file_has_texts_and_labels():
    guesses = torch.tensor([[0.9, 0.1], [0.8, 0.2]])
    table = Table("t", ("one", "two"), ("x", "y"))
    found = replace(report(guesses, torch.tensor([0, 1]), ("x", "y")), table=table)
    rows = found.table_rows(worst_first=True)
    assert [row["text"] for row in rows] == ["two", "one"]
    assert rows[0] == {"text": "two", "label": "y", "predicted": "x", "probability": 0.8,
                       "correct": False}  # fmt: skip
    assert found.summary() == "2 texts, 1 of them wrong"


def test_thresholds_as_lines():
    found = [Threshold("a", 0.75, 0.9, 0.5), Threshold("long", None)]
    assert TextReport(precision=0.9).threshold_lines(found) == [
        "",
        "thresholds for a precision 0.9, chosen on these texts:",
        "a     probability 0.7500: precision 0.9000, recall 0.5000",
        "long  none reaches it",
    ]
    assert TextReport().threshold_lines([]) == []


def test_a_class_without_texts_has_no_recall():
    lines = by_class_lines(("a", "b"), FIGURES, "class")
    assert lines[2].split() == ["a", "2", "1.0000", "0.5000", "0.6670"]
    assert lines[3].split() == ["b", "0", "0.0000", "-", "-"]
