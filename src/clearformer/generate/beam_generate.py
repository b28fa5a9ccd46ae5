"""Beam search with a language model.

Axes: B prompts, K beams, R = B x K rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearformer.config import GenerationDefaults, ModelConfig
from clearformer.generate.beam import Beam, Hypothesis, search
from clearformer.generate.context import (
    ContextOverflow,
    NoLimit,
    SlidingWindow,
    StopAtLimit,
    check_prompt_length,
    context_limit,
)
from clearformer.generate.context import default_overflow as usual_for_one
from clearformer.generate.detokenize import detokenizer
from clearformer.generate.language_model import LanguageModel, require_ids
from clearformer.inference.modes import evaluating


@dataclass(frozen=True)
class BeamCompletion:
    """A text found by beam search, its tokens without the end token, and its score."""

    prompt: str | Sequence[int]
    text: str
    tokens: tuple[int, ...]
    score: float
    finish_reason: Literal["end", "length", "context", "interrupted"]  # why it ended

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the tokens."""
        return self.tokens

    def numbers(self) -> dict[str, object]:
        """Its score; a beam search has no probability of its own for each token."""
        return {"score": self.score}


def generate_beams(
    model: LanguageModel,
    prompts: Sequence[str | Sequence[int]],
    beam: Beam = Beam(),
    *,
    max_tokens: int = 256,
    min_tokens: int = 0,
    banned: Sequence[int] = (),
    context_overflow: ContextOverflow | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[list[BeamCompletion]]:
    """Return the best texts for each prompt, best first; all prompts are read side by side.

    `banned` ids are never generated. `should_stop` is called at each step; if it is true, the
    search ends with what it has.
    """
    rule = context_overflow or default_overflow(model.config)
    if isinstance(rule, SlidingWindow):
        raise ValueError(
            "a beam search cannot slide, because every beam would be read again at each step: stop "
            "at the end of the context, or continue"
        )
    if not 0 <= min_tokens <= max_tokens or max_tokens < 1:
        raise ValueError(
            f"min_tokens is {min_tokens} and max_tokens is {max_tokens}, but they must be at least "
            f"0 and 1, and min_tokens at most max_tokens"
        )
    require_ids("banned has", banned, model.config)
    full = context_limit(rule, model.config)
    encoded = [model.encode(prompt) for prompt in prompts]
    rooms: dict[int, list[int]] = {}  # prompts by the number of tokens they leave room for
    for place, ids in enumerate(encoded):
        check_prompt_length(len(ids), model.config, full)
        # The last token is not read, so it needs no room.
        room = max_tokens if full is None else min(max_tokens, full - len(ids) + 1)
        rooms.setdefault(room, []).append(place)
    found: dict[int, list[BeamCompletion]] = {}
    with evaluating(model.module), torch.inference_mode():
        for room, places in rooms.items():
            hypotheses = search(
                PromptBeams(model, [encoded[place] for place in places], room),
                beam,
                eos_ids=model.eos_ids(),
                max_tokens=room,
                min_tokens=min(min_tokens, room),
                defaults=GenerationDefaults(banned_ids=tuple(banned)),
                should_stop=should_stop,
            )
            for place, several in zip(places, hypotheses, strict=True):
                found[place] = [
                    _best(model, prompts[place], encoded[place], each, room, max_tokens)
                    for each in several
                ]
    return [found[place] for place in range(len(prompts))]


def default_overflow(config: ModelConfig) -> ContextOverflow:
    """The overflow rule of a beam search unless one is given: continue if possible, else stop."""
    rule = usual_for_one(config)
    return rule if isinstance(rule, NoLimit) else StopAtLimit()


class PromptBeams:
    """The beams of prompts in a `Decoder`: a `BeamState`."""

    device = torch.device("cpu")  # of the logits, wherever the model is

    def __init__(
        self, model: LanguageModel, prompts: Sequence[Sequence[int]], max_tokens: int
    ) -> None:
        self.decoder = model.decoder()
        self.prompts = prompts
        self.max_tokens = max_tokens
        self.sentences = len(prompts)
        self.beams = 1

    def first(self) -> Tensor:
        """Logits (B, V) of the first token after each prompt."""
        return self.decoder.prefill(self.prompts, self.max_tokens)

    def step(self, tokens: Tensor) -> Tensor:
        """Add a token to each row (R,); logits (R, V) of the one after it."""
        return self.decoder.step(tokens.tolist())

    def widen(self, beams: int) -> None:
        """Make `beams` copies of each prompt's state."""
        self.beams = beams
        self.decoder.select([row for row in range(self.sentences) for _ in range(beams)])

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Copy the state of the rows `sources` to the rows `targets`, within a prompt."""
        here = self.decoder.device
        for cache in self.decoder.memory:
            cache.copy(sources.to(here), targets.to(here))

    def select(self, sentences: Tensor) -> None:
        """Keep the beams of these prompts alone."""
        self.sentences = len(sentences)
        rows = sentences[:, None] * self.beams + torch.arange(self.beams)
        self.decoder.select(rows.flatten().tolist())


def _best(
    model: LanguageModel,
    prompt: str | Sequence[int],
    ids: Sequence[int],
    found: Hypothesis,
    room: int,
    max_tokens: int,
) -> BeamCompletion:
    text = ""
    if model.tokenizer is not None:
        spelled = detokenizer(model.tokenizer, ids)
        text = "".join(map(spelled.add, found.tokens)) + spelled.flush()
    finish_reason: Literal["end", "length", "context", "interrupted"] = "end"
    if not found.ended:
        cut = len(found.tokens) < room
        finish_reason = "interrupted" if cut else "context" if room < max_tokens else "length"
    return BeamCompletion(prompt, text, found.tokens, found.score, finish_reason)
