"""One text in the making: from logits to the next token, until something ends it.

Everything that makes a text that text and no other is here: its uniform numbers depend on its
seed and its number alone, so it is the same alone or in any batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from torch import Tensor

from clearformer.generate import logits_processors
from clearformer.generate.constraints import Constraint
from clearformer.generate.detokenize import Stops, Token, spelling
from clearformer.generate.sampling import Sampling, draw, shaped
from clearformer.text import Tokenizer

Reason = Literal["length", "end", "stop", "context", "complete"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is to be written, the same for all prompts."""

    how: Sampling = field(default_factory=Sampling)
    most: int = 256  # tokens
    least: int = 0  # tokens before one that ends a text may come
    ends: tuple[int, ...] = ()  # ids of such tokens
    stops: tuple[str, ...] = ()  # texts that end the text, not part of it
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError(f"length is {self.most}, but it must be at least 1")
        if not 0 <= self.least <= self.most:
            raise ValueError(
                f"the least length is {self.least}, but it must be between 0 and the length, "
                f"which is {self.most}"
            )
        if self.how.forced and self.constraint is not None:
            raise ValueError(
                "the task has forced tokens and a constraint, but each of them says how the text "
                "begins: leave one out"
            )
        Stops(self.stops)  # refuses an empty one


class Uniforms:
    """Numbers from [0, 1) that depend on a seed, a row and a place alone."""

    def __init__(self, seed: int, row: int) -> None:
        if not 0 <= row < 2**64:
            raise ValueError(f"the number of a text is {row}, but it must be at least 0")
        # Two words of a key each: any seed and any row, and no two streams meet.
        key = np.array([seed % 2**64, row], dtype=np.uint64)
        self.generator = np.random.Generator(np.random.Philox(key=key))
        self.drawn: list[float] = []

    def __getitem__(self, place: int) -> float:
        while place >= len(self.drawn):
            self.drawn.append(float(self.generator.random()))
        return self.drawn[place]


class Row:
    """A text that grows by one token for each logits that it is given."""

    def __init__(
        self,
        prompt: Sequence[int],
        task: Task,
        tokenizer: Tokenizer | None = None,
        seed: int = 0,
        number: int = 0,
    ) -> None:
        self.prompt = list(prompt)
        self.text: list[int] = []
        self.start = 0  # of what the model sees, in prompt + text
        self.task = task
        self.number = number
        self.uniforms = Uniforms(seed, number)
        self.spelling = None if tokenizer is None else spelling(tokenizer, self.prompt)
        self.stops = Stops(task.stops)
        self.open: list[Token] = []  # the last one, while bytes of its character are missing
        self.state = None if task.constraint is None else task.constraint.start
        self.finished: Reason | None = None

    @property
    def ids(self) -> list[int]:
        return self.prompt + self.text

    @property
    def seen(self) -> list[int]:
        """What the model sees of the text."""
        return self.ids[self.start :]

    def __len__(self) -> int:
        """How many tokens the model sees."""
        return len(self.prompt) + len(self.text) - self.start

    def take(self, logits: Tensor) -> list[Token]:
        """Draw the next token from the model's logits (V,); what has become certain of the text."""
        token = self._draw(logits)
        if token is None:
            self.finished = "complete"
            return self.rest()
        self.text.append(token.id)
        if self.task.constraint is not None:
            self.state = self.task.constraint.after(self.state, token.id)
        if token.id in self.task.ends:
            self.finished = "end"
            return self.rest()
        passed, self.open = self.open + self.stops.add(token), []
        if self.stops.found:
            self.finished = "stop"
            return passed
        if self._complete():
            self.finished = "complete"
        elif len(self.text) >= self.task.most:
            self.finished = "length"
        if self.finished or (self.spelling is not None and self.spelling.waiting):
            passed, self.open = passed[:-1], passed[-1:]
        return passed + self.rest() if self.finished else passed

    def finish(self, reason: Reason) -> list[Token]:
        """End the text from outside."""
        self.finished = reason
        return self.rest()

    def rest(self) -> list[Token]:
        """The last tokens: held back for a stop string that has not come, or with a character of
        which not all bytes have come.
        """
        tokens, self.open = self.open + self.stops.rest(), []
        waiting = "" if self.spelling is None else self.spelling.rest()
        if not tokens or not waiting:
            return tokens
        last = tokens[-1]
        tokens = [*tokens[:-1], replace(last, text=last.text + waiting)]
        # What waited may have a stop string, too.
        passed = [token for each in tokens for token in self.stops.add(each)]
        if self.stops.found:
            self.finished = "stop"
        return passed + self.stops.rest()

    def _draw(self, logits: Tensor) -> Token | None:
        """The next token, or none where the form is complete and the model wants no more."""
        how = self.task.how
        scores = shaped(logits, how, self.prompt, self.text)
        if len(self.text) < self.task.least:
            scores = logits_processors.banned(scores, self.task.ends)
        uniform = self.uniforms[len(self.text)]
        constraint = self.task.constraint
        if constraint is None:
            choice = draw(scores, how, uniform)
        else:
            allowed = constraint.allowed(self.state)
            free = constraint.may_end(self.state) and len(self.text) >= self.task.least
            if not free:
                scores = logits_processors.only(scores, allowed)
                if bool((scores == logits_processors.CUT).all()):
                    raise ValueError(
                        f"no token is left to choose: after {len(self.text)} tokens the form "
                        f"allows {len(allowed)}, and other rules exclude them all"
                    )
            choice = draw(scores, how, uniform)
            if free and choice.id not in allowed.tolist():
                return None
        surprise = -float(logits.log_softmax(0).numpy()[choice.id])
        spelling = None if choice.id in self.task.ends else self.spelling  # an end is no text
        text = "" if spelling is None else spelling.add(choice.id)
        bits = max(0.0, surprise / math.log(2))
        return Token(choice.id, text, choice.probability, bits, uniform)

    def _complete(self) -> bool:
        """Whether the form has been filled and nothing may follow."""
        constraint = self.task.constraint
        if constraint is None or len(constraint.allowed(self.state)):
            return False
        if not constraint.may_end(self.state):
            raise ValueError(
                f"after {len(self.text)} tokens the form allows no token and no end: it cannot be "
                f"filled with these tokens, so give another"
            )
        return True
