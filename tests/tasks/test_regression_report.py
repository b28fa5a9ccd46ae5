"""Figures of a regression equal those of scikit-learn and scipy."""

import math

import numpy as np
import pytest

from clearformer.tasks.regression_report import NumberPrediction, figures, ranks, report, spearman

sklearn_metrics = pytest.importorskip("sklearn.metrics")


@pytest.fixture(scope="module")
def found():
    draw = np.random.default_rng(0)
    labels = draw.normal(100, 20, 80).round()  # with ties
    return report(labels + draw.normal(0, 8, 80), labels, 20.0)


def test_figures_equal_those_of_sklearn(found):
    figure, pair = found.metrics, (found.labels, found.predicted)
    assert figure["rmse"] == pytest.approx(math.sqrt(sklearn_metrics.mean_squared_error(*pair)))
    assert figure["mae"] == pytest.approx(sklearn_metrics.mean_absolute_error(*pair))
    assert figure["r2"] == pytest.approx(sklearn_metrics.r2_score(*pair))
    assert figure["loss"] == pytest.approx(figure["rmse"] ** 2 / 400)


def test_spearman_equals_scipy_with_ties(found):
    stats = pytest.importorskip("scipy.stats")
    expected = stats.spearmanr(found.predicted.round(-1), found.labels).statistic
    assert spearman(found.predicted.round(-1), found.labels) == pytest.approx(expected)
    assert ranks(np.array([5.0, 1.0, 5.0, 9.0])).tolist() == [2.5, 1.0, 2.5, 4.0]


def test_undefined_figures_are_reported_as_such():
    constant = report(np.array([1.0, 2.0]), np.array([3.0, 3.0]), 1.0)
    assert math.isnan(constant.metrics["r2"])
    assert constant.document()["r2"] is None
    assert any("R2           undefined" in line for line in constant.lines())


@pytest.mark.parametrize("metric", ["rmse", "mae", "loss"])
def test_scores_have_the_metric_as_their_mean(found, metric):
    assert np.mean(found.scores(metric)) == pytest.approx(found.metrics[metric])
    assert found.scores("r2") == ()


def test_intervals_hold_the_figures(found):
    for name, each in found.intervals().items():
        assert each.low <= found.metrics[name] <= each.high


def test_a_better_model_is_told_apart(found):
    worse = report(found.labels + 3 * found.errors, found.labels, 20.0)
    test = found.compared_with(worse)
    assert test.difference == pytest.approx(worse.metrics["mae"] - found.metrics["mae"])
    assert test.interval.low > 0
    assert test.p_value < 0.05
    assert "a clear difference" in test.lines()[1]
    same = found.compared_with(found)
    assert (same.difference, same.p_value) == (0.0, 1.0)


def test_a_model_no_better_than_the_mean_is_noticed():
    labels = np.arange(200.0)
    assert "no better than the mean" in report(labels[::-1].copy(), labels, 1.0).remarks()[0]
    assert report(labels + 1, labels, 1.0).remarks() == []


def test_predictions_as_cells():
    cells = NumberPrediction(1.23456789, 1.0).cells(probabilities=False, threshold=None)
    assert cells == {"predicted": 1.23457, "error": 0.234568}
    assert NumberPrediction(3.0).regret < 0 < NumberPrediction(3.0, 1.0).regret
    assert set(figures(np.ones(3), np.arange(3.0))) == {"rmse", "mae", "r2", "spearman"}
