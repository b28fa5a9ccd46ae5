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
from clearformer.generate.detokenize import StopStrings, Token, detokenizer
from clearformer.generate.sampling import Sampling, process_logits, sample
from clearformer.text import Tokenizer

FinishReason = Literal["length", "end", "stop", "context", "complete"]


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """What is to be written, the same for all prompts."""

    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int = 256  # tokens
    min_tokens: int = 0  # tokens before one that ends a text may come
    eos_ids: tuple[int, ...] = ()  # ids of such tokens
    stop: tuple[str, ...] = ()  # texts that end the text, not part of it
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}, but it must be at least 1")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise ValueError(
                f"min_tokens is {self.min_tokens}, but it must be between 0 and max_tokens "
                f"({self.max_tokens})"
            )
        if self.sampling.forced_ids and self.constraint is not None:
            raise ValueError(
                "the task has forced tokens and a constraint, but each of them says how the text "
                "begins: leave one out"
            )
        StopStrings(self.stop)  # refuses an empty one


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


class GeneratedSequence:
    """A text that grows by one token for each logits that it is given."""

    def __init__(
        self,
        prompt: Sequence[int],
        config: GenerationConfig,
        tokenizer: Tokenizer | None = None,
        seed: int = 0,
        index: int = 0,
    ) -> None:
        self.prompt = list(prompt)
        self.generated: list[int] = []
        self.start = 0  # of what the model sees, in prompt + text
        self.config = config
        self.index = index
        self.uniforms = Uniforms(seed, index)
        self.detokenizer = None if tokenizer is None else detokenizer(tokenizer, self.prompt)
        self.stop_filter = StopStrings(config.stop)
        self.open: list[Token] = []  # the last one, while bytes of its character are missing
        self.state = None if config.constraint is None else config.constraint.start
        self.finish_reason: FinishReason | None = None

    @property
    def ids(self) -> list[int]:
        return self.prompt + self.generated

    @property
    def context(self) -> list[int]:
        """What the model sees of the text."""
        return self.ids[self.start :]

    def __len__(self) -> int:
        """How many tokens the model sees."""
        return len(self.prompt) + len(self.generated) - self.start

    def advance(self, logits: Tensor) -> list[Token]:
        """Draw the next token from the model's logits (V,); what has become certain of the text."""
        token = self._draw(logits)
        if token is None:
            self.finish_reason = "complete"
            return self.flush()
        self.generated.append(token.id)
        if self.config.constraint is not None:
            self.state = self.config.constraint.after(self.state, token.id)
        if token.id in self.config.eos_ids:
            self.finish_reason = "end"
            return self.flush()
        passed, self.open = self.open + self.stop_filter.add(token), []
        if self.stop_filter.found:
            self.finish_reason = "stop"
            return passed
        if self._complete():
            self.finish_reason = "complete"
        elif len(self.generated) >= self.config.max_tokens:
            self.finish_reason = "length"
        if self.finish_reason or (self.detokenizer is not None and self.detokenizer.waiting):
            passed, self.open = passed[:-1], passed[-1:]
        return passed + self.flush() if self.finish_reason else passed

    def finish(self, reason: FinishReason) -> list[Token]:
        """End the text from outside."""
        self.finish_reason = reason
        return self.flush()

    def flush(self) -> list[Token]:
        """The last tokens: held back for a stop string that has not come, or with a character of
        which not all bytes have come.
        """
        tokens, self.open = self.open + self.stop_filter.flush(), []
        waiting = "" if self.detokenizer is None else self.detokenizer.flush()
        if not tokens or not waiting:
            return tokens
        last = tokens[-1]
        tokens = [*tokens[:-1], replace(last, text=last.text + waiting)]
        # What waited may have a stop string, too.
        passed = [token for each in tokens for token in self.stop_filter.add(each)]
        if self.stop_filter.found:
            self.finish_reason = "stop"
        return passed + self.stop_filter.flush()

    def _draw(self, logits: Tensor) -> Token | None:
        """The next token, or none where the form is complete and the model wants no more."""
        sampling = self.config.sampling
        scores = process_logits(logits, sampling, self.prompt, self.generated)
        if len(self.generated) < self.config.min_tokens:
            scores = logits_processors.exclude(scores, self.config.eos_ids)
        uniform = self.uniforms[len(self.generated)]
        constraint = self.config.constraint
        if constraint is None:
            chosen = sample(scores, sampling, uniform)
        else:
            allowed = constraint.allowed(self.state)
            free = constraint.may_end(self.state) and len(self.generated) >= self.config.min_tokens
            if not free:
                scores = logits_processors.keep_only(scores, allowed)
                if bool((scores == logits_processors.EXCLUDED).all()):
                    raise ValueError(
                        f"no token is left to choose: after {len(self.generated)} tokens the form "
                        f"allows {len(allowed)}, and other rules exclude them all"
                    )
            chosen = sample(scores, sampling, uniform)
            if free and chosen.id not in allowed.tolist():
                return None
        surprise = -float(logits.log_softmax(0).numpy()[chosen.id])
        detokenizer = (
            None if chosen.id in self.config.eos_ids else self.detokenizer
        )  # an end is no text
        text = "" if detokenizer is None else detokenizer.add(chosen.id)
        bits = max(0.0, surprise / math.log(2))
        return Token(chosen.id, text, chosen.probability, bits, uniform)

    def _complete(self) -> bool:
        """Whether the form has been filled and nothing may follow."""
        constraint = self.config.constraint
        if constraint is None or len(constraint.allowed(self.state)):
            return False
        if not constraint.may_end(self.state):
            raise ValueError(
                f"after {len(self.generated)} tokens the constraint allows neither a token nor the "
                f"end: these tokens cannot satisfy it, so give another"
            )
        return True
