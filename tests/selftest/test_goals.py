"""Selftest goals by name, and the outcome of a failing check."""

import pytest

from clearformer.selftest import goals
from clearformer.selftest.processes import Missed, Skipped


def test_goals_are_numbered_with_three_counts():
    assert list(goals.GOALS) == [f"G{n}" for n in range(1, 21)]
    assert all(len(goal.counts) == 3 for goal in goals.GOALS.values())


def test_chosen_parses_goal_names():
    assert goals.chosen("g5, G1") == ["G5", "G1"]
    assert goals.chosen(None) == list(goals.GOALS)
    with pytest.raises(ValueError, match="there is no goal 'G77': did you mean"):
        goals.chosen("G77")


@pytest.mark.parametrize(
    ("problem", "outcome", "found"),
    [
        (None, "reached", "fine"),
        (Missed("too far"), "missed", "too far"),
        (Skipped("no disk"), "skipped", "no disk"),
        (KeyError("x"), "missed", "KeyError: 'x'"),
    ],
)
def test_attempt_outcomes(monkeypatch, problem, outcome, found):
    def check(place):
        assert place.is_dir()
        if problem is not None:
            raise problem
        return "fine"

    monkeypatch.setitem(goals.GOALS, "G5", goals.Goal("x", check))
    result = next(goals.attempts(["G5"], "test"))
    assert (result.outcome, result.found) == (outcome, found)
