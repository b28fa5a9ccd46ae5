"""Continuous batching: sequences join and leave a batch while it is being generated.

Each sequence has a decoder of its own, and samples with its own random numbers, so its text does
not depend on the others. Tokens of all sequences are computed together where the model allows it
(`inference.ragged_decode`), else one after the other.

Axes: R sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.generate.context import (
    ContextOverflow,
    check_prompt_length,
    context_limit,
    default_overflow,
    handle_overflow,
    remaining_tokens,
)
from clearformer.generate.detokenize import Token
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sequence import GeneratedSequence
from clearformer.inference.caches import StaticKVCache
from clearformer.inference.decoder import Decoder
from clearformer.inference.fast_decode import supports
from clearformer.inference.ragged_decode import RaggedDecoder

ROOM = 64  # tokens that a cache is first made for, after the prompt; it grows with the text


@dataclass(frozen=True)
class Update:
    """What a step did to one sequence; later steps do not change it."""

    sequence: GeneratedSequence
    tokens: list[Token]
    ended: bool
    problem: ValueError | None = None  # what ended it, if it did not end by itself


class ContinuousBatch:
    """Sequences that are generated side by side; others may be added after any step."""

    def __init__(self, model: LanguageModel, context_overflow: ContextOverflow | None = None):
        self.model = model
        self.overflow = context_overflow or default_overflow(model.config)
        self.limit = context_limit(self.overflow, model.config)
        self.unread: list[GeneratedSequence] = []  # those whose context is still to be read
        self.decoders: dict[GeneratedSequence, Decoder] = {}
        self.together: RaggedDecoder | None = None  # once a decoder has shown its caches
        model.module.eval()

    def __len__(self) -> int:
        return len(self.unread) + len(self.decoders)

    def add(self, sequence: GeneratedSequence) -> None:
        """Generate this sequence too, from the next step on."""
        check_prompt_length(len(sequence), self.model.config, self.limit)
        self.unread.append(sequence)

    def remove(self, sequence: GeneratedSequence) -> None:
        """Stop generating a sequence; no error if it has ended."""
        self.decoders.pop(sequence, None)
        if sequence in self.unread:
            self.unread.remove(sequence)

    def step(self) -> list[Update]:
        """Generate one token of each sequence, and read the context of at most one new one."""
        updates = []
        running = list(self.decoders)
        if running:
            logits = self._logits([self.decoders[each] for each in running], running)
            updates = [
                self._advance(sequence, row) for sequence, row in zip(running, logits, strict=True)
            ]
        if self.unread:
            # One at a time, so that the others do not wait long for their next token.
            sequence = self.unread.pop(0)
            decoder = self.model.decoder()
            room = min(ROOM, remaining_tokens([sequence], self.limit))
            first = decoder.read([sequence.context], room)[0]  # (V,)
            self.decoders[sequence] = decoder
            updates.append(self._advance(sequence, first))
        return updates

    def _advance(self, sequence: GeneratedSequence, logits: Tensor) -> Update:
        problem = None
        try:
            tokens = sequence.advance(logits)
        except ValueError as error:
            tokens, problem = [], error
        grown = self.limit is not None and len(sequence) > self.limit
        if problem is None and sequence.finish_reason is None and grown:
            assert self.limit is not None
            tokens = tokens + handle_overflow(sequence, self.overflow, self.limit)
            if sequence.finish_reason is None:  # a shorter context, to be read again
                del self.decoders[sequence]
                self.unread.append(sequence)
        ended = problem is not None or sequence.finish_reason is not None
        if ended:
            self.remove(sequence)
        return Update(sequence, tokens, ended, problem)

    def _logits(self, decoders: list[Decoder], sequences: Sequence[GeneratedSequence]) -> Tensor:
        """The logits (R, V) after the newest token of each sequence."""
        tokens = [sequence.generated[-1] for sequence in sequences]
        for decoder in decoders:
            if decoder.full:
                decoder.grow()
        if self.together is None:
            if self.model.step is not None or not supports(self.model.module, decoders[0].memory):
                parts = zip(decoders, tokens, strict=True)
                return torch.cat([decoder.step([token]) for decoder, token in parts])
            self.together = RaggedDecoder(self.model.module)
        device = decoders[0].device
        caches = [
            [cache for cache in decoder.memory if isinstance(cache, StaticKVCache)]
            for decoder in decoders
        ]
        logits = self.together(torch.tensor(tokens, device=device), caches)
        for decoder in decoders:
            decoder.length += 1
        return logits.float().cpu()
