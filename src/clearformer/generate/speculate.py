"""Speculative decoding: a draft proposes tokens, the model verifies them in one pass.

Each token of the model is still sampled from its own logits with its own uniform number; the
proposals only decide how many of the logits are valid. The text is therefore, token for token, the
one generated without a draft, not just one of the same distribution.

The usual algorithm accepts a proposal q with probability min(1, p/q) and resamples from the
remainder. It accepts slightly more often, but its text depends on the draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from clearformer.config import KVCache
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import next_token
from clearformer.generate.sequence import GeneratedSequence
from clearformer.inference.decoder import Decoder


class Draft(Protocol):
    """A source of proposals."""

    def check_compatible(self, model: LanguageModel) -> None:
        """Raise ValueError for a model that this draft cannot propose for."""

    def propose(self, sequence: GeneratedSequence) -> Sequence[int]:
        """The next tokens that the sequence may have; possibly none."""


@dataclass(frozen=True)
class PromptLookup:
    """Proposes what followed the last occurrence of the final n-gram.

    It costs nothing, and works where a text repeats its prompt (summaries, code, forms).
    """

    longest: int = 3  # n-gram, in tokens
    tokens: int = 8  # to propose

    def __post_init__(self) -> None:
        for name in ("longest", "tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but it must be at least 1")

    def check_compatible(self, model: LanguageModel) -> None:
        pass  # any model: it uses token ids alone

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
    """Proposes tokens of a smaller model, sampled with the uniform numbers of the large one."""

    model: LanguageModel
    tokens: int = 4  # to propose
    decoder: Decoder = field(init=False)
    read: list[int] = field(init=False, default_factory=list)  # the ids in the decoder's cache

    def __post_init__(self) -> None:
        require_rollback(self.model)
        self.decoder = self.model.decoder()

    def check_compatible(self, model: LanguageModel) -> None:
        own, wanted = self.model.config.vocabulary, model.config.vocabulary
        if own != wanted:
            raise ValueError(
                f"the draft has {own:,} tokens, but {model.config.name} has {wanted:,}: a draft "
                f"needs the same tokenizer"
            )

    def propose(self, sequence: GeneratedSequence) -> Sequence[int]:
        limit = self.model.config.length
        text, proposed = sequence.context, list[int]()
        if len(text) + self.tokens > limit:
            return ()
        while len(proposed) < self.tokens:
            logits = self._after([*text, *proposed], limit)
            uniform = sequence.uniforms[len(sequence.generated) + len(proposed)]
            so_far = [*sequence.generated, *proposed]
            proposed.append(
                next_token(logits, sequence.config.sampling, uniform, sequence.prompt, so_far).id
            )
        return proposed

    def _after(self, text: list[int], limit: int) -> Tensor:
        known = common_prefix(self.read, text[:-1])
        if not known:
            logits = self.decoder.prefill([text], limit - len(text))[0]
        else:
            self.decoder.rollback(len(self.read) - known)
            logits = self.decoder.extend(text[known:])[-1]
        self.read = text
        return logits


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the common prefix of two sequences."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def require_rollback(model: LanguageModel) -> None:
    """Raise ValueError for a model whose cache cannot drop its last tokens."""
    if not isinstance(model.config.cache, KVCache):
        raise ValueError(
            f"{model.config.name} has a memory of hidden states that cannot drop tokens, which a "
            f"draft needs: generate without one"
        )
