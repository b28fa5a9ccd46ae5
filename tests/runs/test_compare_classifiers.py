"""Paired comparison of two classifiers (tests/cli/test_evaluate.py compares runs)."""

import torch

from clearformer.runs.compare_classifiers import Comparison
from clearformer.tasks.class_report import report
from clearformer.tasks.class_statistics import paired_test


def test_lines_and_document():
    probabilities = torch.tensor([[0.9, 0.1]] * 8 + [[0.1, 0.9]] * 2)
    second = report(probabilities, torch.zeros(10, dtype=torch.long), ("a", "b"))
    found = Comparison("runs/b", second, paired_test([0.0] * 10, second.right))
    assert found.lines()[1] == "second       runs/b"
    assert "difference   +0.8000" in "\n".join(found.lines())
    document = found.document()
    assert (document["first_only"], document["second_only"]) == (0, 8)
    assert document["p_value"] < 0.01
