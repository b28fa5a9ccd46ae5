"""Several tokens for one reading of the weights: somebody guesses, the model checks.

A draft proposes how the text goes on. The model reads all of it at once, and each of its own
tokens is drawn as ever, from its own logits with its own uniform number; the proposal only
decides how far the reading was worth something. So the text is, token for token, the one that
would have been written without a draft: not just its distribution is the model's.

The usual way accepts a proposal q with probability min(1, p/q) and draws again from what is left
over. It accepts a little more often, at the price of a text that depends on the draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from clearformer.config import KVCache
from clearformer.generate.context import (
    ContextOverflow,
    check_prompt_length,
    context_limit,
    handle_overflow,
    remaining_tokens,
)
from clearformer.generate.decoder import Decoder
from clearformer.generate.detokenize import Token
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import next_token
from clearformer.generate.sequence import GeneratedSequence


class Draft(Protocol):
    """Whoever guesses."""

    def check_compatible(self, model: LanguageModel) -> None:
        """Refuse a model that this draft cannot guess for."""

    def propose(self, sequence: GeneratedSequence) -> Sequence[int]:
        """How the row's text may go on; nothing, if there is no idea."""


@dataclass(frozen=True)
class PromptLookup:
    """What followed the last time that the text had its last words: free, and good where a text
    repeats its prompt (summaries, code, forms).
    """

    longest: int = 3  # tokens that must have come before
    tokens: int = 8  # to propose

    def __post_init__(self) -> None:
        for name in ("longest", "tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but it must be at least 1")

    def check_compatible(self, model: LanguageModel) -> None:
        pass  # it knows nothing but tokens

    def propose(self, sequence: GeneratedSequence) -> Sequence[int]:
        ids = sequence.context
        for length in range(min(self.longest, len(ids) - 1), 0, -1):
            ending = ids[-length:]
            for start in range(len(ids) - length - 1, -1, -1):
                if ids[start : start + length] == ending:
                    after = start + length
                    return ids[after : after + self.tokens]
        return ()


@dataclass
class DraftModel:
    """A smaller model of the same tokens, which draws with the very numbers that its elder will."""

    model: LanguageModel
    tokens: int = 4  # to propose
    decoder: Decoder = field(init=False)
    read: list[int] = field(init=False, default_factory=list)  # what the decoder knows

    def __post_init__(self) -> None:
        require_cache(self.model)
        self.decoder = Decoder(self.model)

    def check_compatible(self, model: LanguageModel) -> None:
        own, wanted = self.model.config.vocabulary, model.config.vocabulary
        if own != wanted:
            raise ValueError(
                f"the draft has {own:,} tokens, but {model.config.name} has {wanted:,}: a draft "
                f"needs the same tokenizer"
            )

    def propose(self, sequence: GeneratedSequence) -> Sequence[int]:
        remaining_tokens = self.model.config.length
        text, proposed = sequence.context, list[int]()
        if len(text) + self.tokens > remaining_tokens:
            return ()
        while len(proposed) < self.tokens:
            logits = self._after([*text, *proposed], remaining_tokens)
            uniform = sequence.uniforms[len(sequence.generated) + len(proposed)]
            so_far = [*sequence.generated, *proposed]
            proposed.append(
                next_token(logits, sequence.config.sampling, uniform, sequence.prompt, so_far).id
            )
        return proposed

    def _after(self, text: list[int], remaining_tokens: int) -> Tensor:
        known = common(self.read, text[:-1])
        if not known:
            logits = self.decoder.prefill([text], remaining_tokens - len(text))[0]
        else:
            self.decoder.rollback(len(self.read) - known)
            logits = self.decoder.extend(text[known:])[-1]
        self.read = text
        return logits


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts begin with together."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def speculate(
    model: LanguageModel, sequence: GeneratedSequence, draft: Draft, rule: ContextOverflow
) -> Iterator[Token]:
    """The tokens of one row, with a draft's help."""
    require_cache(model)
    draft.check_compatible(model)
    full = context_limit(rule, model.config)
    check_prompt_length(len(sequence), model.config, full)
    decoder = Decoder(model)
    logits = decoder.prefill([sequence.context], remaining_tokens([sequence], full))  # (1, V)
    proposed: Sequence[int] = ()
    while True:
        right = 0
        for place, scores in enumerate(logits):  # each (V,)
            yield from sequence.advance(scores)
            if sequence.finish_reason is not None:
                return
            if place == len(proposed) or sequence.generated[-1] != proposed[place]:
                break
            right += 1
        if full is not None and len(sequence) > full:
            yield from handle_overflow(sequence, rule, full)
            if sequence.finish_reason is not None:
                return
            logits, proposed = (
                decoder.prefill([sequence.context], remaining_tokens([sequence], full)),
                (),
            )
            continue
        decoder.rollback(len(proposed) - right)
        most = decoder.capacity - decoder.length - 1  # beside the token just drawn
        proposed = draft.propose(sequence)[:most]
        logits = decoder.extend([sequence.generated[-1], *proposed])  # (1 + proposed, V)


def require_cache(model: LanguageModel) -> None:
    if not isinstance(model.config.past, KVCache):
        raise ValueError(
            f"{model.config.name} keeps hidden states and cannot take a token back, which a draft "
            f"needs: write without one"
        )
