"""A sequence being generated: samples one token per logits until something ends it.

Its uniform random numbers depend on the seed and its index alone, so it is the same text alone
and in any batch.
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
from clearformer.generate.detokenize import Alternative, StopStrings, Token, detokenizer
from clearformer.generate.sampling import Sampling, process_logits, sample
from clearformer.text import Tokenizer

FinishReason = Literal["length", "end", "stop", "context", "complete", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """Settings of a generation, the same for all prompts."""

    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int = 256
    min_tokens: int = 0  # generated before an end-of-sequence token is allowed
    eos_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()  # strings that end the text, without being part of it
    constraint: Constraint | None = None
    alternatives: int = 0  # most likely tokens to report with each sampled one

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
                "there are forced tokens and a constraint, but both determine how the text begins: "
                "leave one out"
            )
        StopStrings(self.stop)  # raises for an empty one


class Uniforms:
    """Random numbers from [0, 1) that depend on a seed, a sequence and a position alone."""

    def __init__(self, seed: int, index: int) -> None:
        if not 0 <= index < 2**64:
            raise ValueError(f"the index of a sequence is {index}, but it must be at least 0")
        # Two words of a key: any seed and any index, and no two streams are the same.
        key = np.array([seed % 2**64, index], dtype=np.uint64)
        self.generator = np.random.Generator(np.random.Philox(key=key))
        self.drawn: list[float] = []

    def __getitem__(self, position: int) -> float:
        while position >= len(self.drawn):
            self.drawn.append(float(self.generator.random()))
        return self.drawn[position]


class GeneratedSequence:
    """A prompt and the tokens sampled after it."""

    def __init__(
        self,
        prompt: Sequence[int],
        config: GenerationConfig,
        tokenizer: Tokenizer | None = None,
        seed: int = 0,
        index: int = 0,
    ) -> None:
        self.prompt = list(prompt)
        self.generated: list[int] = []  # ids of all sampled tokens
        self.tokens: list[Token] = []  # those whose text is certain
        self.start = 0  # of the context that the model sees, in prompt + generated
        self.config = config
        self.index = index
        self.uniforms = Uniforms(seed, index)
        self.detokenizer = None if tokenizer is None else detokenizer(tokenizer, self.prompt)
        self.stop_strings = StopStrings(config.stop)
        self.pending: list[Token] = []  # the last token, while bytes of its character are missing
        self.state = None if config.constraint is None else config.constraint.start
        self.finish_reason: FinishReason | None = None

    @property
    def text(self) -> str:
        """The generated text, as far as it is certain."""
        return "".join(token.text for token in self.tokens)

    @property
    def context(self) -> list[int]:
        """The ids that the model sees."""
        return (self.prompt + self.generated)[self.start :]

    def __len__(self) -> int:
        """The number of tokens in the context."""
        return len(self.prompt) + len(self.generated) - self.start

    def advance(self, logits: Tensor) -> list[Token]:
        """Sample the next token from the logits (V,); return the tokens that became certain."""
        return self._release(self._advance(logits))

    def finish(self, reason: FinishReason) -> list[Token]:
        """End the sequence from outside; return the tokens that were held back."""
        self.finish_reason = reason
        return self._release(self._flush())

    def _release(self, tokens: list[Token]) -> list[Token]:
        self.tokens += tokens
        return tokens

    def _advance(self, logits: Tensor) -> list[Token]:
        token = self._sample(logits)
        if token is None:
            self.finish_reason = "complete"
            return self._flush()
        self.generated.append(token.id)
        if self.config.constraint is not None:
            self.state = self.config.constraint.after(self.state, token.id)
        if token.id in self.config.eos_ids:
            self.finish_reason = "end"
            return self._flush()
        passed, self.pending = self.pending + self.stop_strings.add(token), []
        if self.stop_strings.found:
            self.finish_reason = "stop"
            return passed
        if self._complete():
            self.finish_reason = "complete"
        elif len(self.generated) >= self.config.max_tokens:
            self.finish_reason = "length"
        if self.finish_reason or (self.detokenizer is not None and self.detokenizer.waiting):
            passed, self.pending = passed[:-1], passed[-1:]
        return passed + self._flush() if self.finish_reason else passed

    def _flush(self) -> list[Token]:
        """Return the last tokens: held back for a possible stop string, or for missing bytes."""
        tokens, self.pending = self.pending + self.stop_strings.flush(), []
        waiting = "" if self.detokenizer is None else self.detokenizer.flush()
        if not tokens or not waiting:
            return tokens
        last = tokens[-1]
        tokens = [*tokens[:-1], replace(last, text=last.text + waiting)]
        # The text that was held back may contain a stop string, too.
        passed = [token for each in tokens for token in self.stop_strings.add(each)]
        if self.stop_strings.found:
            self.finish_reason = "stop"
        return passed + self.stop_strings.flush()

    def _sample(self, logits: Tensor) -> Token | None:
        """Sample a token, or None where the constraint is met and the model chose to end."""
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
                        f"no token is left to choose: after {len(self.generated)} tokens the "
                        f"constraint allows {len(allowed)}, and other settings exclude them all"
                    )
            chosen = sample(scores, sampling, uniform)
            if free and chosen.id not in allowed.tolist():
                return None
        logs = logits.log_softmax(0)  # (V,)
        nats = -float(logs.numpy()[chosen.id])
        text = ""
        if self.detokenizer is not None and chosen.id not in self.config.eos_ids:
            text = self.detokenizer.add(chosen.id)
        bits = max(0.0, nats / math.log(2))
        return Token(chosen.id, text, chosen.probability, bits, uniform, self._alternatives(logs))

    def _alternatives(self, logs: Tensor) -> tuple[Alternative, ...]:
        """The most likely tokens, given the log probabilities (V,)."""
        count = min(self.config.alternatives, len(logs))
        if not count:
            return ()
        found, ids = logits_processors.top_sorted(logs, count)
        pairs = zip(ids.tolist()[:count], found.tolist(), strict=False)
        return tuple(Alternative(id, max(0.0, -nats / math.log(2))) for id, nats in pairs)

    def _complete(self) -> bool:
        """Whether the constraint is met and allows no further token."""
        constraint = self.config.constraint
        if constraint is None or len(constraint.allowed(self.state)):
            return False
        if not constraint.may_end(self.state):
            raise ValueError(
                f"after {len(self.generated)} tokens the constraint allows neither a token nor the "
                f"end: these tokens cannot satisfy it, so give another"
            )
        return True
