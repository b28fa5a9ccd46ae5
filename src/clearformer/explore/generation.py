"""A text that grows before one's eyes: each token with its draw and what else it could have been.

The tokens come from the very functions that `clearformer generate` calls, so one seed gives one
text. Each token is one call on the model's thread; a page that goes away closes the text.

Axes: V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch import Tensor

from clearformer.explore import arrays, token_display
from clearformer.explore.errors import Problem, bad_field, wrong_kind
from clearformer.explore.inputs import require_ids, require_text
from clearformer.explore.library import Opened
from clearformer.explore.limits import Limits
from clearformer.explore.requests import GenerateAsked
from clearformer.explore.subject import Subject
from clearformer.generate import logits_processors
from clearformer.generate.context import limit, require_room, usual
from clearformer.generate.detokenize import Token
from clearformer.generate.sampling import Sampling, cut, shaped
from clearformer.generate.sequence import Row, Task
from clearformer.generate.stream import grow, writing
from clearformer.generate.writer import Writer
from clearformer.text import Tokenizer

ALTERNATIVES = 10


class WatchedRow(Row):
    """A text in the making that remembers what its tokens were drawn from, until they are handed
    out: one whose character is not all there waits for the next."""

    def __init__(
        self, prompt: Sequence[int], task: Task, tokenizer: Tokenizer | None, seed: int
    ) -> None:
        super().__init__(prompt, task, tokenizer, seed)
        self.drawn_from: deque[Tensor] = deque()  # probabilities (V,), the oldest token's first

    def take(self, logits: Tensor) -> list[Token]:
        scores = shaped(logits, self.task.how, self.prompt, self.text)
        if self.task.how.temperature == 0:
            probabilities = logits_processors.only(scores, scores.argmax()[None]).softmax(0)
        else:
            probabilities = cut(scores, self.task.how).softmax(0)
        self.drawn_from.append(probabilities)
        return super().take(logits)


class Text:
    """One text: `next_token` gives the next event, or none when it has ended."""

    def __init__(self, opened: Opened, asked: GenerateAsked, limits: Limits) -> None:
        config, subject = opened.config, opened.subject
        if "translate" in config.verbs:
            raise wrong_kind("an encoder-decoder writes its translation: use the Tasks page")
        try:
            writer = Writer(subject.transformer, config, subject.tokenizer)
        except ValueError as problem:
            raise wrong_kind(str(problem)) from None
        require_text(asked.prompt, limits)
        if asked.max_new_tokens > limits.max_new_tokens:
            raise Problem(
                413,
                "too_long",
                f"{asked.max_new_tokens} new tokens, limit {limits.max_new_tokens}",
                hint="ask for fewer and go on from there",
                limit=limits.max_new_tokens,
            )
        forced = require_ids(opened, asked.forced, "forced") if asked.forced else []
        how = Sampling(
            temperature=asked.temperature,
            top_k=asked.top_k,
            top_p=asked.top_p,
            forced=tuple(forced),
        )
        task = Task(how=how, most=len(forced) + asked.max_new_tokens, ends=writer.ends())
        try:
            prompt = writer.encode(asked.prompt)
            rule = usual(config)
            require_room(len(prompt), config, limit(rule, config))
        except ValueError as problem:
            raise bad_field("prompt", str(problem)) from None
        self.opened = opened
        self.subject = subject
        self.forced = len(forced)
        self.row = WatchedRow(prompt, task, subject.tokenizer, asked.seed)
        self.events = self._events(writer, rule)

    def next_token(self) -> dict[str, Any] | None:
        return next(self.events, None)

    def close(self) -> None:
        self.events.close()

    @property
    def reason(self) -> str:
        return self.row.finished or "cancelled"

    def _events(self, writer: Writer, rule: Any) -> Generator[dict[str, Any]]:
        with writing(writer.model):
            for place, (_, token) in enumerate(grow(writer, [self.row], rule)):
                probabilities = self.row.drawn_from.popleft()
                if place >= self.forced:
                    yield event(self.subject, place, token, probabilities)


def event(subject: Subject, i: int, token: Token, probabilities: Tensor) -> dict[str, Any]:
    """What a page is told of one token."""
    shares, ids = logits_processors.falling(
        probabilities, min(ALTERNATIVES, probabilities.shape[0])
    )
    shares, ids = shares[:ALTERNATIVES], ids[:ALTERNATIVES]
    named = token_display.words(subject, ids.tolist())
    own = token_display.words(subject, [token.id])[0]
    return {
        "i": i,
        "id": token.id,
        "text": token.text,
        "display": own["display"],
        "p": token.probability,
        "u": token.uniform,
        "bits": arrays.number(token.bits),
        "cumulative": interval(probabilities, token.id),
        "top": [{**word, "p": share} for word, share in zip(named, shares.tolist(), strict=True)],
    }


def interval(probabilities: Tensor, chosen: int) -> list[float]:
    """Between which two sums the draw fell: tokens in falling order, ties by id."""
    share = probabilities[chosen]
    ids = torch.arange(probabilities.shape[0])
    before = (probabilities > share) | ((probabilities == share) & (ids < chosen))
    low = float(probabilities[before].sum())
    return [low, low + float(share)]
