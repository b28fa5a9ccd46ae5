"""Standard errors of an evaluation."""

import pytest

from clearformer.tasks.measured import shares, standard_error


def test_standard_error_needs_two_scores():
    assert standard_error([1.0]) is None
    assert standard_error([1.0, float("nan")]) is None
    assert standard_error([1.0, 3.0]) == pytest.approx(1.0)


def test_mean_of_shares_is_sum_over_total():
    found = shares([1.0, 2.0, 3.0], 12.0)
    assert sum(found) / 3 == pytest.approx(0.5)
