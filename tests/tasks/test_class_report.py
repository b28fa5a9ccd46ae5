"""Report of a classifier: figures as JSON, predictions, scores of each metric."""

import json

import pytest
import torch

from clearformer.data.tables import Table
from clearformer.tasks.class_report import report

PROBABILITIES = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.6, 0.4, 0.0], [0.3, 0.7, 0.0]])
LABELS = torch.tensor([0, 1, 1, 2])


@pytest.fixture
def found():
    return report(PROBABILITIES, LABELS, ("a", "b", "c"))


def test_document_is_json(found):
    document = json.loads(json.dumps(found.document()))
    assert document["accuracy"] == 0.5
    assert document["macro_f1"] == pytest.approx((2 / 3 + 0.5 + 0) / 3)
    assert [each["name"] for each in document["classes"]] == ["a", "b", "c"]
    assert document["thresholds"] == []


def test_scores_have_the_metric_as_mean(found):
    assert sum(found.scores("accuracy")) / 4 == found.accuracy
    assert sum(found.scores("loss")) / 4 == pytest.approx(found.loss)
    assert found.scores("macro_f1") == ()


def test_class_that_is_never_predicted(found):
    assert found.never_predicted == ["c"]


def test_rows_without_a_file_have_text_and_label(found):
    from dataclasses import replace

    table = Table("corpus", ("one", "two", "three", "four"), ("a", "b", "b", "c"))
    rows = replace(found, table=table).table_rows(worst_first=True)
    assert [row["text"] for row in rows][:2] == ["four", "three"]
    assert list(rows[0]) == ["text", "label", "predicted", "probability", "correct"]


def test_lines_have_both_figures_with_intervals(found):
    lines = "\n".join(found.lines())
    assert "accuracy     0.5000 on 4 texts, standard error" in lines
    assert "macro F1     0.3889, 95% interval" in lines
