"""Statistics of a classifier, against scikit-learn and by hand."""

import math

import numpy as np
import pytest
import torch

from clearformer.tasks.class_statistics import bootstrap, macro_f1, paired_test, thresholds


def confusion_of(labels, guesses, classes):
    found = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(found, (labels, guesses), 1)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_is_that_of_scikit_learn(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(seed)
    labels, guesses = draw.integers(4, size=(2, 60))
    labels[labels == 3] = 0  # a class that is guessed, but never right
    expected = metrics.f1_score(labels, guesses, average="macro", zero_division=0.0)
    assert macro_f1(confusion_of(labels, guesses, 4)) == pytest.approx(expected)


def test_a_bootstrap_interval_is_about_two_standard_errors():
    confusion = np.array([[350, 50], [50, 350]])
    interval = bootstrap(confusion)["accuracy"]
    error = math.sqrt(0.875 * 0.125 / 800)
    assert interval.low == pytest.approx(0.875 - 1.96 * error, abs=0.004)
    assert interval.high == pytest.approx(0.875 + 1.96 * error, abs=0.004)
    assert bootstrap(confusion) == bootstrap(confusion)


def test_thresholds_keep_what_they_promise():
    probabilities = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4], [0.1, 0.9]])
    labels = torch.tensor([0, 0, 1, 0, 1])
    first, second = thresholds(probabilities, labels, ("a", "b"), precision=1.0)
    assert (first.probability, first.precision, first.recall) == pytest.approx((0.8, 1.0, 2 / 3))
    assert (second.probability, second.recall) == pytest.approx((0.9, 0.5))
    first, _ = thresholds(probabilities, labels, ("a", "b"), recall=1.0)
    assert (first.probability, first.precision, first.recall) == pytest.approx((0.6, 0.75, 1.0))
    only_wrong = thresholds(probabilities, torch.zeros(5, dtype=torch.long), "ab", precision=0.5)
    assert only_wrong[1].probability is None


def test_equal_probabilities_are_accepted_together():
    probabilities = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    first, _ = thresholds(probabilities, torch.tensor([0, 1]), ("a", "b"), precision=0.9)
    assert first.probability is None


def test_mcnemar_is_the_exact_binomial_test():
    stats = pytest.importorskip("scipy.stats")
    first = [1] * 20 + [0] * 9 + [1] * 71
    second = [0] * 20 + [1] * 9 + [1] * 71
    found = paired_test(first, second)
    assert (found.first_only, found.second_only, found.texts) == (20, 9, 100)
    assert found.difference == pytest.approx(-0.11)
    assert found.p_value == pytest.approx(stats.binomtest(9, 29).pvalue)
    assert found.interval.low < -0.11 < found.interval.high
    assert "too small a difference" in found.lines()[-1]
    assert "a clear difference" in paired_test([1] * 30, [0] * 20 + [1] * 10).lines()[-1]
