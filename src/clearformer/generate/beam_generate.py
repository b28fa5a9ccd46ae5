"""The likeliest texts that follow prompts: beam search with a generator.

Axes: B prompts, K beams, R = B x K rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearformer.config import ModelConfig, TargetRules
from clearformer.generate.beam import Beam, Hypothesis, search
from clearformer.generate.context import Continue, PastContext, Slide, Stop, limit, require_room
from clearformer.generate.context import usual as usual_for_one
from clearformer.generate.decoder import Decoder
from clearformer.generate.detokenize import spelling
from clearformer.generate.stream import writing
from clearformer.generate.writer import Writer, require_ids


@dataclass(frozen=True)
class Best:
    """A text that was found, its tokens without the one that ended it, and its score: log
    probability over length^penalty."""

    prompt: str | Sequence[int]
    text: str
    tokens: tuple[int, ...]
    score: float
    reason: Literal["end", "length", "context", "interrupted"]  # why it ended


def generate_best(
    writer: Writer,
    prompts: Sequence[str | Sequence[int]],
    how: Beam = Beam(),
    *,
    most: int = 256,
    least: int = 0,
    banned: Sequence[int] = (),
    past_context: PastContext | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> list[list[Best]]:
    """The best texts for each prompt, the best first; all prompts are read side by side.

    `banned` tokens never come, and `enough` is asked at every step whether to end here.
    """
    rule = past_context or usual(writer.config)
    if isinstance(rule, Slide):
        raise ValueError(
            "a beam search cannot slide, since all its versions would be read anew at every step: "
            "stop at the end of the context, or continue"
        )
    if not 0 <= least <= most or most < 1:
        raise ValueError(
            f"the text is to have {least} to {most} tokens, but it must have at least 1, and the "
            f"least no more than the most"
        )
    require_ids("banned has", banned, writer.config)
    full = limit(rule, writer.config)
    encoded = [writer.encode(prompt) for prompt in prompts]
    rooms: dict[int, list[int]] = {}  # tokens that there is room for: places of the prompts
    for place, ids in enumerate(encoded):
        require_room(len(ids), writer.config, full)
        # The last token needs no room: nothing follows it.
        room = most if full is None else min(most, full - len(ids) + 1)
        rooms.setdefault(room, []).append(place)
    found: dict[int, list[Best]] = {}
    with writing(writer.model), torch.inference_mode():
        for room, places in rooms.items():
            hypotheses = search(
                Reading(writer, [encoded[place] for place in places], room),
                how,
                ends=writer.ends(),
                most=room,
                least=min(least, room),
                rules=TargetRules(never=tuple(banned)),
                enough=enough,
            )
            for place, several in zip(places, hypotheses, strict=True):
                found[place] = [
                    _best(writer, prompts[place], encoded[place], each, room, most)
                    for each in several
                ]
    return [found[place] for place in range(len(prompts))]


def usual(config: ModelConfig) -> PastContext:
    """What a search does past the context unless it is told: it goes on if it can, or ends."""
    rule = usual_for_one(config)
    return rule if isinstance(rule, Continue) else Stop()


class Reading:
    """Prompts that a `Decoder` reads, and versions of how they go on."""

    device = torch.device("cpu")  # of logits, wherever the model is

    def __init__(self, writer: Writer, prompts: Sequence[Sequence[int]], most: int) -> None:
        self.decoder = Decoder(writer)
        self.prompts = prompts
        self.most = most
        self.sentences = len(prompts)
        self.beams = 1

    def first(self) -> Tensor:
        """Logits (B, V) of the first token after each prompt."""
        return self.decoder.read(self.prompts, self.most)

    def step(self, tokens: Tensor) -> Tensor:
        """Add a token to each row (R,); logits (R, V) of the one after it."""
        return self.decoder.step(tokens.tolist())

    def widen(self, beams: int) -> None:
        """So many versions of each prompt from here on, one after the other."""
        self.beams = beams
        self.decoder.select([row for row in range(self.sentences) for _ in range(beams)])

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """The rows `targets` become what the rows `sources` are, of the same prompt."""
        here = self.decoder.device
        for cache in self.decoder.memory:
            cache.copy(sources.to(here), targets.to(here))

    def select(self, sentences: Tensor) -> None:
        """Go on with these prompts alone, all versions of each."""
        self.sentences = len(sentences)
        rows = sentences[:, None] * self.beams + torch.arange(self.beams)
        self.decoder.select(rows.flatten().tolist())


def _best(
    writer: Writer,
    prompt: str | Sequence[int],
    ids: Sequence[int],
    found: Hypothesis,
    room: int,
    most: int,
) -> Best:
    text = ""
    if writer.tokenizer is not None:
        spelled = spelling(writer.tokenizer, ids)
        text = "".join(map(spelled.add, found.tokens)) + spelled.rest()
    reason: Literal["end", "length", "context", "interrupted"] = "end"
    if not found.ended:
        cut = len(found.tokens) < room
        reason = "interrupted" if cut else "context" if room < most else "length"
    return Best(prompt, text, found.tokens, found.score, reason)
