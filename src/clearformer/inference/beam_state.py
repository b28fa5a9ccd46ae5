"""Sequences that grow together, a token a step, with everything before them cached.

What a search needs of a model, whether it has one stack or two: logits of what may follow,
and to go on with some of the sequences, or with several versions of each (beams).

Axes: B sentences, R rows (sentences x beams), S source tokens, T prompt tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from clearformer.config import ModelConfig, Seq2SeqConfig
from clearformer.core.heads import NextToken, at_least_float32, capped
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.inference.caches import StaticKVCache, inference_caches, select_sources
from clearformer.inference.fast_decode import product
from clearformer.inference.modes import evaluating

ROOM = 32  # tokens that a cache starts with; it doubles when they are used up


class Growing:
    """Base of both: the caches and the head are one story."""

    def __init__(
        self, model: Seq2Seq | Transformer, config: ModelConfig, sentences: int, beams: int = 1
    ) -> None:
        """`beams` says how many versions of a sentence there will be, once it is widened."""
        weight = next(model.parameters())
        assert isinstance(model.head, NextToken)
        self.head = model.head
        self.project = product(model.head.project, sentences * beams)
        self.device = weight.device
        self.sentences = sentences
        self.beams = 1
        self.memory = inference_caches(config, sentences, ROOM, weight.dtype, weight.device)

    def first(self) -> Tensor:
        """Logits (B, V) of the first token of each sentence."""
        raise NotImplementedError

    def step(self, tokens: Tensor) -> Tensor:
        """Add a token to each row (R,); logits (R, V) of the one after it."""
        return self._logits(tokens[:, None])

    def widen(self, beams: int) -> None:
        """So many versions of each sentence from here on, one after the other: R = B x beams."""
        self.beams = beams
        rows = torch.arange(self.sentences, device=self.device).repeat_interleave(beams)
        self._select_rows(rows)

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """The rows `targets` become what the rows `sources` are."""
        for cache in self.memory:
            cache.copy(sources, targets)

    def select(self, sentences: Tensor) -> None:
        """Go on with these sentences alone, all versions of each."""
        versions = torch.arange(self.beams, device=self.device)
        self.sentences = len(sentences)
        self._select_rows((sentences[:, None] * self.beams + versions).flatten())

    def _select_rows(self, rows: Tensor) -> None:
        for cache in self.memory:
            cache.select(rows)

    def _logits(self, tokens: Tensor) -> Tensor:
        """Logits (R, V) after the last of these tokens (R, T)."""
        self.make_room(tokens.shape[1])
        hidden = self._hidden(tokens)[:, -1]  # (R, E)
        for cache in self.memory:
            cache.advance()
        return self.logits(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (R, V) of hidden states (R, E)."""
        return at_least_float32(capped(self.project(hidden), self.head.cap))

    def make_room(self, tokens: int) -> None:
        needed = self.memory[0].length + tokens
        for cache in self.memory:
            if isinstance(cache, StaticKVCache) and needed > cache.capacity:
                cache.grow(max(needed, 2 * cache.capacity))

    def _hidden(self, tokens: Tensor) -> Tensor:
        raise NotImplementedError


class Translating(Growing):
    """Targets of sources (B, S): the encoder runs once; each beam has its keys and values."""

    def __init__(
        self,
        model: Seq2Seq,
        config: Seq2SeqConfig,
        source: Tensor,
        attention_mask: Tensor | None = None,
    ) -> None:
        super().__init__(model, config, len(source))
        assert config.marks is not None
        self.model = model
        self.start = config.marks.start
        self.source = model.encode(source, attention_mask)

    def first(self) -> Tensor:
        return self._logits(torch.full((self.sentences, 1), self.start, device=self.device))

    def _select_rows(self, rows: Tensor) -> None:
        super()._select_rows(rows)
        select_sources(self.source.caches, rows)
        attention_mask = self.source.attention_mask
        self.source = replace(
            self.source, attention_mask=None if attention_mask is None else attention_mask[rows]
        )

    def _hidden(self, tokens: Tensor) -> Tensor:
        return self.model.hidden(tokens, self.source, caches=self.memory)


class Continuing(Growing):
    """Continuations of prompts (B, T), padded on the left where `attention_mask` is False."""

    def __init__(
        self,
        model: Transformer,
        config: ModelConfig,
        prompt: Tensor,
        attention_mask: Tensor | None = None,
    ) -> None:
        super().__init__(model, config, len(prompt))
        self.model = model
        self.prompt = prompt
        self.attention_mask = attention_mask

    def first(self) -> Tensor:
        return self._logits(self.prompt)

    def step(self, tokens: Tensor) -> Tensor:
        if self.attention_mask is not None:
            self.attention_mask = torch.cat(
                (self.attention_mask, self.attention_mask.new_ones(len(self.attention_mask), 1)),
                dim=1,
            )
        return super().step(tokens)

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        super().copy(sources, targets)
        if self.attention_mask is not None:
            self.attention_mask = self.attention_mask.index_copy(
                0, targets, self.attention_mask[sources]
            )

    def _select_rows(self, rows: Tensor) -> None:
        super()._select_rows(rows)
        self.attention_mask = None if self.attention_mask is None else self.attention_mask[rows]

    def _hidden(self, tokens: Tensor) -> Tensor:
        return self.model.hidden(tokens, self.attention_mask, caches=self.memory)


@contextmanager
def resting(model: nn.Module) -> Iterator[None]:
    """A model in evaluation mode, without gradients; how it was comes back afterwards."""
    with evaluating(model), torch.inference_mode():
        yield
