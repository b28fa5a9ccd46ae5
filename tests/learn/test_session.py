"""Check, hint and solution from Python."""

import pytest

import clearformer as cf
from clearformer.learn import progress


def test_check_records_attempts_and_success():
    assert not cf.learn.check("1.1", lambda x: x)
    assert cf.learn.check("1.1", lambda x: x @ x.mT)
    assert not cf.learn.check("1.1", lambda x: x)
    assert progress.load()["1.1"] == progress.Record(attempts=3, solved=True)


def test_hints_are_shown_in_order():
    found = [cf.learn.hint("1.1") for _ in range(4)]
    hints = cf.learn.chapters()[0].exercises[0].hints
    for place, text in enumerate(hints, 1):
        assert found[place - 1].startswith(f"hint {place} of 3: {text}")
    assert found[2].endswith("(the last hint; clearformer learn solution 1.1)")
    assert found[3] == found[2]


def test_solution_returns_source():
    assert cf.learn.solution("1.1").startswith("def raw_scores(x: Tensor) -> Tensor:\n")


def test_check_rejects_non_function():
    with pytest.raises(ValueError, match="must be a function: pass raw_scores without calling it"):
        cf.learn.check("1.1", 5)
