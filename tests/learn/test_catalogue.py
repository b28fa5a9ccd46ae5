"""The exercise catalogue: numbering, solutions, and distinct wrong answers."""

from pathlib import Path

import pytest

from clearformer.learn.catalogue import CHAPTERS, chapters, find
from clearformer.learn.judge import judge

EXERCISES = [each for chapter in CHAPTERS for each in chapter.exercises]
BOOK = Path(__file__).parents[2] / "docs" / "book"
by_number = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda each: each.number)


def test_exercises_are_numbered_in_their_order():
    assert len(EXERCISES) >= 12
    numbers = [chapter.number for chapter in chapters()]
    assert numbers == sorted(set(numbers))
    for number, chapter in zip(numbers, chapters(), strict=True):
        expected = [f"{number}.{place}" for place in range(1, len(chapter.exercises) + 1)]
        assert [each.number for each in chapter.exercises] == expected


@by_number
def test_every_solution_passes(exercise):
    verdict = judge(exercise, exercise.answer)
    assert verdict.passed, verdict
    assert exercise.solution.startswith(exercise.signature.split("(")[0] + "(")


@by_number
def test_known_mistakes_get_specific_messages(exercise):
    assert len(exercise.mistakes) >= 3
    for mistake in exercise.mistakes:
        verdict = judge(exercise, mistake.answer)
        assert (verdict.passed, verdict.message) == (False, mistake.message)


@by_number
def test_every_exercise_has_three_hints(exercise):
    assert len(set(exercise.hints)) == 3


def test_rejects_unknown_exercise():
    with pytest.raises(ValueError, match=r"there is no exercise '0\.9': known: 1\.1, 1\.2"):
        find("0.9")
