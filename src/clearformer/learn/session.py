"""Check, hint and solution of exercises, with the learner's progress."""

from __future__ import annotations

from dataclasses import replace

from clearformer.learn import progress
from clearformer.learn.catalogue import find
from clearformer.learn.forms import Answer
from clearformer.learn.judge import Verdict, judge


def check(number: str, answer: Answer) -> Verdict:
    """Judge an answer to an exercise, and remember the result.

    Args:
        number (str): The exercise, as in "1.2".
        answer (callable): Your function. It is called with small tensors.

    Returns:
        Verdict: True if the answer is right; printed, it says what is wrong.
    """
    exercise = find(number)
    if not callable(answer):
        raise ValueError(
            f"answer is {answer!r:.60}, but it must be a function: pass {exercise.name} without "
            f"calling it"
        )
    verdict = judge(exercise, answer)
    record = progress.of(exercise.number)
    solved = record.solved or verdict.passed
    progress.save(exercise.number, replace(record, attempts=record.attempts + 1, solved=solved))
    return verdict


def hint(number: str) -> str:
    """The next hint of an exercise: three in all, then the last one again."""
    exercise = find(number)
    record = progress.of(exercise.number)
    step = min(record.hints, len(exercise.hints) - 1)
    progress.save(exercise.number, replace(record, hints=step + 1))
    rest = "" if step < 2 else f" (the last hint; clearformer learn solution {exercise.number})"
    return f"hint {step + 1} of {len(exercise.hints)}: {exercise.hints[step]}{rest}"


def solution(number: str) -> str:
    """The source of a solution."""
    return find(number).solution
