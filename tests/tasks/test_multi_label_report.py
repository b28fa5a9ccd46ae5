"""Multi-label metrics equal those of scikit-learn and hand computation."""

import numpy as np
import pytest
import torch

from clearformer.tasks.multi_label_report import LabelSetPrediction, report

sklearn_metrics = pytest.importorskip("sklearn.metrics")
NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def found():
    draw = torch.Generator().manual_seed(0)
    labels = (torch.rand(60, 3, generator=draw) < 0.4).float()
    probabilities = (0.4 * labels + 0.65 * torch.rand(60, 3, generator=draw)).clamp(0.01, 0.99)
    return report(probabilities, labels, NAMES)


def test_metrics_equal_those_of_sklearn(found):
    labels, guesses = found.labels.numpy(), (found.probabilities >= 0.5).numpy()
    for average in ("micro", "macro"):
        expected = sklearn_metrics.f1_score(labels, guesses, average=average)
        assert found.metrics[f"{average}_f1"] == pytest.approx(expected)
    exact = sklearn_metrics.accuracy_score(labels, guesses)
    assert found.metrics["subset_accuracy"] == pytest.approx(exact)
    figures = sklearn_metrics.precision_recall_fscore_support(labels, guesses)
    for index, row in enumerate(found.by_label()):
        assert row[2:] == pytest.approx([figures[kind][index] for kind in range(3)])
        assert row[1] == figures[3][index]
    loss = np.mean([sklearn_metrics.log_loss(labels[:, i], found.probabilities[:, i].numpy())
                    for i in range(3)])  # fmt: skip
    assert found.metrics["loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("metric", ["micro_f1", "subset_accuracy", "loss"])
def test_scores_have_the_metric_as_their_mean(found, metric):
    assert np.mean(found.scores(metric)) == pytest.approx(found.metrics[metric])
    assert found.scores("macro_f1") == ()


def test_intervals_hold_the_figures_and_repeat(found):
    intervals = found.intervals()
    for name, each in intervals.items():
        assert each.low <= found.metrics[name] <= each.high
        assert each.low < each.high
    assert found.intervals() == intervals


def test_report_lines_and_document(found):
    text = "\n".join(found.lines())
    assert "micro F1" in text
    assert "all right" in text
    assert "label   texts  precision" in text
    document = found.document()
    assert [each["name"] for each in document["labels"]] == list(NAMES)
    assert document["thresholds"] == []


def test_thresholds_reach_the_precision_asked_for(found):
    from dataclasses import replace

    for each in replace(found, precision=0.9).document()["thresholds"]:
        accepted = found.probabilities[:, NAMES.index(each["name"])] >= each["probability"]
        right = found.labels[accepted][:, NAMES.index(each["name"])]
        assert float(right.mean()) == pytest.approx(each["precision"])
        assert each["precision"] >= 0.9


def test_a_label_that_is_never_predicted_is_named():
    found = report(torch.full((4, 2), 0.1), torch.eye(2).repeat(2, 1), ("x", "y"))
    assert found.remarks()[0].startswith("'x', 'y' are never predicted on the validation texts")


def test_a_prediction_as_cells():
    both = LabelSetPrediction({"a": 0.9, "b": 0.2, "c": 0.6}, ("a",))
    assert both.chosen() == ("a", "c")
    assert both.probability == pytest.approx(0.9 * 0.8 * 0.6)
    cells = both.cells(probabilities=True, threshold=None)
    assert cells == {"predicted": "a; c", "probability": 0.432, "correct": False,
                     "p(a)": 0.9, "p(b)": 0.2, "p(c)": 0.6}  # fmt: skip
    right = LabelSetPrediction({"a": 0.9, "b": 0.2}, ("a",))
    assert right.regret < both.regret
    strict = LabelSetPrediction({"a": 0.9, "b": 0.6}).cells(probabilities=False, threshold=0.8)
    assert strict["predicted"] == "a"
    assert "correct" not in strict
