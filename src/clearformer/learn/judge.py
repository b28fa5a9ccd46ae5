"""Judges an answer: shapes, values, gradients, `verify`, and known mistakes."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearformer.learn.cost import largest_tensor
from clearformer.learn.exercise import Case, Exercise
from clearformer.learn.forms import Answer, WrongAnswerError

RELATIVE, ABSOLUTE = 1e-4, 1e-5  # float32, and sums in another order


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and a message; true if it is right."""

    number: str
    passed: bool
    message: str

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return f"{self.number}: {'right' if self.passed else 'not yet'}: {self.message}"

    __repr__ = __str__


def judge(exercise: Exercise, answer: Answer) -> Verdict:
    """Try an answer with every case of an exercise."""
    cases = exercise.cases()
    right, tried = exercise.form.function(exercise.answer), exercise.form.function(answer)
    wanted = [right(*copied(case)) for case in cases]
    try:
        got = [outcome(tried, case, exercise.parameters) for case in cases]
        if not same(got, wanted):
            raise WrongAnswerError(
                _known_mistake(exercise, cases, got)
                or exercise.form.named_bug(answer)
                or _difference(exercise, cases, got, wanted)
            )
        _require_gradients(exercise.parameters, cases[0], right, tried)
        if (bug := exercise.form.named_bug(answer)) is not None:
            raise WrongAnswerError(f"the values are right, but {bug}")
        _require_cost(exercise, tried, cases[-1])
    except WrongAnswerError as wrong:
        return Verdict(exercise.number, False, str(wrong))
    judged = "shapes, values and gradients" if _floats(cases[0]) else "every number"
    agree = f"{judged} agree in {_cases(len(cases))}{exercise.form.also_judged}"
    return Verdict(exercise.number, True, agree)


def outcome(answer: Answer, case: Case, names: Sequence[str]) -> Tensor:
    """The result of an answer for a case, as a tensor."""
    arguments = copied(case)
    found = _call(answer, arguments)
    for name, before, after in zip(names, case, arguments, strict=True):
        if isinstance(before, Tensor) and not same([before], [after]):
            raise WrongAnswerError(
                f"it changes its argument {name} in place: the caller still needs {name}, so make "
                f"a new tensor"
            )
    return as_tensor(found)


def as_tensor(found: Any) -> Tensor:
    """A returned value as a tensor."""
    if found is None or found is Ellipsis:
        raise WrongAnswerError("it returns nothing: write the function, and return its result")
    if isinstance(found, Tensor):
        return found
    try:
        return torch.as_tensor(found)
    except (TypeError, ValueError, RuntimeError):
        raise WrongAnswerError(
            f"it returns a {type(found).__name__}, but a tensor is wanted: return one tensor"
        ) from None


def copied(case: Case, *, gradients: bool = False) -> Case:
    """The arguments with tensors of their own, which may ask for gradients."""
    return tuple(
        each.clone().requires_grad_(gradients and each.is_floating_point())
        if isinstance(each, Tensor)
        else each
        for each in case
    )


def same(found: Sequence[Tensor], wanted: Sequence[Any]) -> bool:
    """Whether all tensors have the same shapes and, up to rounding, the same values."""
    return all(
        a.shape == b.shape
        and torch.allclose(a.detach().double(), b.detach().double(), RELATIVE, ABSOLUTE)
        for a, b in zip(found, map(torch.as_tensor, wanted), strict=True)
    )


def _call(answer: Answer, arguments: Case) -> Any:
    try:
        return answer(*arguments)
    except WrongAnswerError:
        raise
    except (Exception, SystemExit) as problem:
        raise WrongAnswerError(f"it fails: {described(problem, answer)}") from None


def described(problem: BaseException, answer: Answer) -> str:
    """An error of user code in one line, with the line of the file where it was raised."""
    code = getattr(inspect.unwrap(answer), "__code__", None)
    file = None if code is None else code.co_filename
    return error_line(problem, file)


def error_line(problem: BaseException, file: str | None) -> str:
    """Type, first line of the message, and the last line in `file` that was being run."""
    said = (str(problem).strip().splitlines() or [""])[0]
    lines = [
        frame.lineno for frame in traceback.extract_tb(problem.__traceback__)
        if frame.filename == file
    ]  # fmt: skip
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(problem).__name__}{': ' if said else ''}{said}{where}"


def _known_mistake(exercise: Exercise, cases: Sequence[Case], got: Sequence[Tensor]) -> str | None:
    """The message of the wrong answer that returns the same."""
    for mistake in exercise.mistakes:
        mistaken = exercise.form.function(mistake.answer)
        outcomes = [torch.as_tensor(mistaken(*copied(case))) for case in cases]
        # NaN where the mistake has NaN is the same mistake.
        if all(
            a.shape == b.shape
            and torch.allclose(a.double(), b.double(), RELATIVE, ABSOLUTE, equal_nan=True)
            for a, b in zip(got, outcomes, strict=True)
        ):
            return mistake.message
    return None


def _difference(
    exercise: Exercise, cases: Sequence[Case], got: Sequence[Tensor], wanted: Sequence[Any]
) -> str:
    """How the first wrong result differs."""
    for case, found, right in zip(cases, got, map(torch.as_tensor, wanted), strict=True):
        if same([found], [right]):
            continue
        given = _given(exercise, case)
        if found.shape != right.shape:
            return (
                f"the shape is {tuple(found.shape)}, but with {given} it must be "
                f"{tuple(right.shape)}"
            )
        if found.isnan().any():
            return f"the result has NaN with {given}: which step can overflow, or divides by zero?"
        gap = (found.double() - right.double()).abs()
        place = int(gap.argmax())
        index = [int(each) for each in torch.unravel_index(torch.tensor(place), gap.shape)]
        where = f" at {index}" if index else ""
        value, correct = (float(each.flatten()[place]) for each in (found, right))
        return (
            f"the shape is right, the values are not: with {given} the result{where} is "
            f"{value:.4f}, but it must be {correct:.4f}"
        )
    raise AssertionError("no result differs")


def _given(exercise: Exercise, case: Case) -> str:
    """The arguments of a case in words: tensors by shape, numbers by value."""
    words = [
        f"{name} {tuple(each.shape)}" if isinstance(each, Tensor) else f"{name}={each}"
        for name, each in zip(exercise.parameters, case, strict=True)
        if isinstance(each, Tensor | int | float)
    ]
    return ", ".join(words)


def _require_gradients(parameters: Sequence[str], case: Case, right: Answer, tried: Answer) -> None:
    """The same gradient for every tensor of the arguments, of a fixed function of the result."""
    if not _floats(case):
        return
    named = list(zip(parameters, case, strict=True))
    names = [name for name, each in named if isinstance(each, Tensor) and each.is_floating_point()]
    wanted, got = (_gradients(each, case) for each in (right, tried))
    for name, expected, found in zip(names, wanted, got, strict=True):
        if expected is None:
            if found is not None and wanted != [None] * len(wanted) and found.any():
                raise WrongAnswerError(
                    f"the values are right, but a gradient reaches {name}, where it must stop: use "
                    f"{name}.detach()"
                )
            continue
        if found is None:
            raise WrongAnswerError(
                f"the values are right, but no gradient reaches {name}: .item(), .detach(), "
                f".data, numpy, torch.no_grad and torch.tensor(...) cut it off"
            )
        if not same([found], [expected]):
            raise WrongAnswerError(f"the values are right, but the gradient of {name} is not")


def _require_cost(exercise: Exercise, answer: Answer, case: Case) -> None:
    """No tensor larger than the exercise allows."""
    if exercise.largest is None:
        return
    limit, made = exercise.largest(*case), largest_tensor(lambda: _call(answer, copied(case)))
    if made > limit:
        raise WrongAnswerError(
            f"the values are right, but with {_given(exercise, case)} it makes a tensor of "
            f"{made:,} elements, and at most {limit:,} are allowed: what need not be computed at "
            f"all?"
        )


def _gradients(answer: Answer, case: Case) -> list[Tensor | None]:
    arguments = copied(case, gradients=True)
    leaves = [each for each in arguments if isinstance(each, Tensor) and each.requires_grad]
    result = as_tensor(_call(answer, arguments))
    if not result.requires_grad:
        return [None] * len(leaves)
    probe = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).view(result.shape)
    try:
        return list(torch.autograd.grad((result * probe).sum(), leaves, allow_unused=True))
    except RuntimeError as problem:
        inplace = "inplace" in str(problem)
        reason = "a step changes a tensor in place (+=, /=, x[...] = )" if inplace else str(problem)
        raise WrongAnswerError(
            f"the values are right, but the backward pass fails: {reason.splitlines()[0]}"
        ) from None


def _floats(case: Case) -> bool:
    return any(isinstance(each, Tensor) and each.is_floating_point() for each in case)


def _cases(count: int) -> str:
    return f"{count} case" if count == 1 else f"{count} cases"
