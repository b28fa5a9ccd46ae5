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

from clearformer.generate.context import PastContext, limit, require_room, room, slide
from clearformer.generate.decoder import Decoder
from clearformer.generate.detokenize import Token
from clearformer.generate.sampling import choose
from clearformer.generate.sequence import Row
from clearformer.generate.writer import Writer


class Draft(Protocol):
    """Whoever guesses."""

    def suit(self, writer: Writer) -> None:
        """Refuse a model that this draft cannot guess for."""

    def propose(self, row: Row) -> Sequence[int]:
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

    def suit(self, writer: Writer) -> None:
        pass  # it knows nothing but tokens

    def propose(self, row: Row) -> Sequence[int]:
        ids = row.seen
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

    writer: Writer
    tokens: int = 4  # to propose
    decoder: Decoder = field(init=False)
    read: list[int] = field(init=False, default_factory=list)  # what the decoder knows

    def __post_init__(self) -> None:
        require_cache(self.writer)
        self.decoder = Decoder(self.writer)

    def suit(self, writer: Writer) -> None:
        own, wanted = self.writer.config.vocabulary, writer.config.vocabulary
        if own != wanted:
            raise ValueError(
                f"the draft has {own:,} tokens, but {writer.config.name} has {wanted:,}: a draft "
                f"needs the same tokenizer"
            )

    def propose(self, row: Row) -> Sequence[int]:
        room = self.writer.config.length
        text, proposed = row.seen, list[int]()
        if len(text) + self.tokens > room:
            return ()
        while len(proposed) < self.tokens:
            logits = self._after([*text, *proposed], room)
            uniform = row.uniforms[len(row.text) + len(proposed)]
            so_far = [*row.text, *proposed]
            proposed.append(choose(logits, row.task.how, uniform, row.prompt, so_far).id)
        return proposed

    def _after(self, text: list[int], room: int) -> Tensor:
        known = common(self.read, text[:-1])
        if not known:
            logits = self.decoder.read([text], room - len(text))[0]
        else:
            self.decoder.forget(len(self.read) - known)
            logits = self.decoder.look(text[known:])[-1]
        self.read = text
        return logits


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts begin with together."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def speculate(writer: Writer, row: Row, draft: Draft, rule: PastContext) -> Iterator[Token]:
    """The tokens of one row, with a draft's help."""
    require_cache(writer)
    draft.suit(writer)
    full = limit(rule, writer.config)
    require_room(len(row), writer.config, full)
    decoder = Decoder(writer)
    logits = decoder.read([row.seen], room([row], full))  # (1, V)
    proposed: Sequence[int] = ()
    while True:
        right = 0
        for place, scores in enumerate(logits):  # each (V,)
            yield from row.take(scores)
            if row.finished is not None:
                return
            if place == len(proposed) or row.text[-1] != proposed[place]:
                break
            right += 1
        if full is not None and len(row) > full:
            yield from slide(row, rule, full)
            if row.finished is not None:
                return
            logits, proposed = decoder.read([row.seen], room([row], full)), ()
            continue
        decoder.forget(len(proposed) - right)
        most = decoder.capacity - decoder.length - 1  # beside the token just drawn
        proposed = draft.propose(row)[:most]
        logits = decoder.look([row.text[-1], *proposed])  # (1 + proposed, V)


def require_cache(writer: Writer) -> None:
    if writer.config.past is None or writer.config.memory is not None:
        raise ValueError(
            f"{writer.config.name} keeps hidden states and cannot take a token back, which a draft "
            f"needs: write without one"
        )
