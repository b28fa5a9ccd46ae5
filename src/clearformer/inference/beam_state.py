"""State of a beam search: sequences that grow by one token per step, with their caches.

It gives a search the logits of the next tokens, and lets it continue with some of the sequences,
or with several beams of each.

Axes: B sentences, R rows (sentences x beams), S source tokens, T prompt tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from clearformer.config import ModelConfig, Seq2SeqConfig
from clearformer.core.heads import NextToken, at_least_float32, capped
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.inference.caches import StaticKVCache, inference_caches, select_sources
from clearformer.inference.fast_decode import product

INITIAL_CAPACITY = 32  # tokens of a new cache; doubled when it is full


class BeamState:
    """Base class: the caches and the head."""

    def __init__(
        self, model: Seq2Seq | Transformer, config: ModelConfig, sentences: int, beams: int = 1
    ) -> None:
        """`beams` is the number of beams of a sentence after `widen`."""
        weight = next(model.parameters())
        assert isinstance(model.head, NextToken)
        self.head = model.head
        self.project = product(model.head.project, sentences * beams)
        self.device = weight.device
        self.sentences = sentences
        self.beams = 1
        self.memory = inference_caches(
            config, sentences, INITIAL_CAPACITY, weight.dtype, weight.device
        )

    def first(self) -> Tensor:
        """Logits (B, V) of the first token of each sentence."""
        raise NotImplementedError

    def step(self, tokens: Tensor) -> Tensor:
        """Add a token to each row (R,); logits (R, V) of the one after it."""
        return self._logits(tokens[:, None])

    def widen(self, beams: int) -> None:
        """Use `beams` beams for each sentence from now on, in adjacent rows: R = B x beams."""
        self.beams = beams
        rows = torch.arange(self.sentences, device=self.device).repeat_interleave(beams)
        self._select_rows(rows)

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Replace the rows `targets` by the rows `sources`."""
        for cache in self.memory:
            cache.copy(sources, targets)

    def select(self, sentences: Tensor) -> None:
        """Continue with these sentences only, with all their beams."""
        versions = torch.arange(self.beams, device=self.device)
        self.sentences = len(sentences)
        self._select_rows((sentences[:, None] * self.beams + versions).flatten())

    def _select_rows(self, rows: Tensor) -> None:
        for cache in self.memory:
            cache.select(rows)

    def _logits(self, tokens: Tensor) -> Tensor:
        """Logits (R, V) after the last of these tokens (R, T)."""
        self.reserve(tokens.shape[1])
        hidden = self._hidden(tokens)[:, -1]  # (R, E)
        for cache in self.memory:
            cache.advance()
        return self.logits(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (R, V) of hidden states (R, E)."""
        return at_least_float32(capped(self.project(hidden), self.head.cap))

    def reserve(self, tokens: int) -> None:
        needed = self.memory[0].length + tokens
        for cache in self.memory:
            if isinstance(cache, StaticKVCache) and needed > cache.capacity:
                cache.grow(max(needed, 2 * cache.capacity))

    def _hidden(self, tokens: Tensor) -> Tensor:
        raise NotImplementedError


class TranslationBeams(BeamState):
    """Beams for the targets of sources (B, S): the encoder runs once, each beam has its caches."""

    def __init__(
        self,
        model: Seq2Seq,
        config: Seq2SeqConfig,
        start_id: int,
        source: Tensor,
        attention_mask: Tensor | None = None,
    ) -> None:
        super().__init__(model, config, len(source))
        self.model = model
        self.start_id = start_id
        self.source = model.encode(source, attention_mask)

    def first(self) -> Tensor:
        return self._logits(torch.full((self.sentences, 1), self.start_id, device=self.device))

    def _select_rows(self, rows: Tensor) -> None:
        super()._select_rows(rows)
        select_sources(self.source.caches, rows)
        attention_mask = self.source.attention_mask
        self.source = replace(
            self.source, attention_mask=None if attention_mask is None else attention_mask[rows]
        )

    def _hidden(self, tokens: Tensor) -> Tensor:
        return self.model.hidden(tokens, self.source, caches=self.memory)
