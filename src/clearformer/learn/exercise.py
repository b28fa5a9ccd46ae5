"""An exercise: a task, its solution, inputs to try an answer with, and known wrong answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearformer.learn.forms import FUNCTION, Answer, FunctionForm

Case = tuple[Any, ...]  # the arguments of one call


@dataclass(frozen=True)
class Mistake:
    """A common wrong answer, and the message for it."""

    answer: Answer
    message: str


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise of a chapter. An answer has the solution's name and arguments."""

    number: str  # "1.2": the second of chapter 1
    title: str
    task: str
    answer: Answer  # the solution
    cases: Callable[[], list[Case]]
    hints: tuple[str, str, str]
    mistakes: tuple[Mistake, ...]
    form: FunctionForm = FUNCTION  # what an answer is: a function, or a module
    largest: Callable[..., int] | None = None  # elements of the largest tensor an answer may make

    @property
    def name(self) -> str:
        """The name of the function or class to write."""
        return self.answer.__name__

    @property
    def signature(self) -> str:
        """The first line of the function or class to write."""
        return self.form.signature(self.answer)

    @property
    def parameters(self) -> list[str]:
        """Names of the arguments of a case."""
        return self.form.parameters(self.answer)

    @property
    def solution(self) -> str:
        """The source of the solution."""
        return inspect.getsource(self.answer)


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normally distributed numbers, the same at every call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
