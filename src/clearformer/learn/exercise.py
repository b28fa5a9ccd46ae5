"""An exercise: a task, its solution, inputs to try an answer with, and known wrong answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Answer = Callable[..., Any]
Case = tuple[Any, ...]  # the arguments of one call


@dataclass(frozen=True)
class Mistake:
    """A common wrong answer, and the message for it."""

    answer: Answer
    message: str


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise of a chapter. An answer is a function with the solution's name and arguments."""

    number: str  # "1.2": the second of chapter 1
    title: str
    task: str
    answer: Answer  # the solution
    cases: Callable[[], list[Case]]
    hints: tuple[str, str, str]
    mistakes: tuple[Mistake, ...]

    @property
    def name(self) -> str:
        """The name of the function to write."""
        return self.answer.__name__

    @property
    def signature(self) -> str:
        """The first line of the function to write."""
        return f"def {self.name}({', '.join(self.parameters)}):"

    @property
    def parameters(self) -> list[str]:
        return list(inspect.signature(self.answer).parameters)

    @property
    def solution(self) -> str:
        """The source of the solution."""
        return inspect.getsource(self.answer)


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normally distributed numbers, the same at every call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
