"""Forms of an answer: a function, or a module that the catalogue of `verify` judges too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Answer = Callable[..., Any]


class WrongAnswerError(Exception):
    """What is wrong with an answer, as a sentence."""


class FunctionForm:
    """The answer is a function: it is called as it is."""

    also_judged = ""  # what is said of a right answer beyond shapes, values and gradients

    def signature(self, answer: Answer) -> str:
        """The first line of what is to be written."""
        return f"def {answer.__name__}({', '.join(self.parameters(answer))}):"

    def parameters(self, answer: Answer) -> list[str]:
        """Names of the arguments of `function`."""
        return list(inspect.signature(answer).parameters)

    def function(self, answer: Answer) -> Answer:
        """The answer as a function of tensors and numbers."""
        return answer

    def named_bug(self, answer: Answer) -> str | None:
        """What is wrong with an answer beyond its values, if anything is."""
        return None


@dataclass(frozen=True)
class ModuleForm(FunctionForm):
    """The answer is a class derived from nn.Module, made by `answer(*arguments)`.

    It is tried as a function of its input x and of its weights, so that values and gradients are
    judged as those of a function are; and `verify` looks at it as `kind`.
    """

    arguments: tuple[int, ...]
    weights: tuple[str, ...]  # names of its parameters
    kind: str  # as in `clearformer verify --as`
    also_judged = ", and verify finds nothing"

    def signature(self, answer: Answer) -> str:
        return f"class {answer.__name__}(nn.Module):"

    def parameters(self, answer: Answer) -> list[str]:
        return ["x", *self.weights]

    def function(self, answer: Answer) -> Answer:
        # wraps: an error is reported with its line in the learner's file.
        @functools.wraps(getattr(answer, "forward", answer))
        def run(x: Tensor, *weights: Tensor) -> Any:
            module = self.module(answer)
            given = dict(zip(self.weights, weights, strict=True))
            self._require_weights(module, given)
            return torch.func.functional_call(module, given, (x,))

        return run

    def module(self, answer: Answer) -> nn.Module:
        """The module, in eval mode; making it leaves torch's random numbers as they were."""
        written = getattr(answer, "forward", None), getattr(answer, "__init__", None)
        if written == (nn.Module.forward, nn.Module.__init__):
            raise WrongAnswerError(
                "it returns nothing: the class has neither __init__ nor forward yet, write both"
            )
        with torch.random.fork_rng(devices=[]):
            made = answer(*self.arguments)
        if not isinstance(made, nn.Module):
            raise WrongAnswerError(
                f"it makes a {type(made).__name__}, but a module is wanted: derive from nn.Module"
            )
        return made.eval()

    def named_bug(self, answer: Answer) -> str | None:
        """The first problem that `verify` finds, with its name in the catalogue."""
        from clearformer.verification.check import verify

        try:
            problems = verify(self.module(answer), as_=self.kind).problems
        except (ValueError, WrongAnswerError):
            return None  # it cannot be looked at: its values say what is wrong
        for each in problems:
            right = f" Right: {each.right}" if each.right else ""
            return (
                f"verify finds {each.name}: {each.sentence}{right} (clearformer verify --explain "
                f"{each.name})"
            )
        return None

    def _require_weights(self, module: nn.Module, given: dict[str, Tensor]) -> None:
        own = {name: tuple(each.shape) for name, each in module.named_parameters()}
        wanted = {name: tuple(each.shape) for name, each in given.items()}
        if own != wanted:
            raise WrongAnswerError(
                f"its parameters are {_listed(own)}, but they must be {_listed(wanted)}: use these "
                f"names and shapes, so that weights can be copied in"
            )


def _listed(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none"


FUNCTION = FunctionForm()
