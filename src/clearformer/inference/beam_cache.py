"""Beams as paths in a tree of tokens, without moving a single key.

A beam search keeps the best versions of each sentence, and in each step some versions end and
others branch. Kept as rows of a cache, most of its content would be copied in every step. Here a
sentence has one cache for all its versions: a step adds one token for each of them, and a mask
says which tokens a version came by. To branch is to copy a row of that mask. What no version came
by any more is dropped when there is enough of it.

The decoder's blocks are those of `fast_decode`; models with parts that are not written out
(`supports`) keep their beams as rows of a cache (`beam_state.Translating`).

Axes: B sentences, W versions of each, R = B x W rows, H heads, G key heads, D head width,
K tokens in a sentence's cache, S source tokens, E model width.
"""

from __future__ import annotations

import math
from inspect import unwrap

import torch
from torch import Tensor, nn

from clearformer.config import Seq2SeqConfig
from clearformer.core.block import DecoderBlock
from clearformer.core.kernels import fused
from clearformer.core.model import Seq2Seq, Source
from clearformer.core.patterns import Causal
from clearformer.core.positions import Position
from clearformer.inference.beam_state import Growing
from clearformer.inference.caches import StaticKVCache, select_sources
from clearformer.inference.fast_decode import (
    Step,
    cross_attention,
    feed_forward,
    layer,
    norm_function,
    self_attention,
    supports_block,
)
from clearformer.kernels.fast import fast

WORTH = 0.8  # what is left of a cache for dropping the rest to pay


def supports(model: Seq2Seq) -> bool:
    """Whether all of this model's decoder is written out here."""
    return all(isinstance(each, Causal) for each in model.decoder.patterns) and all(
        isinstance(block, DecoderBlock)
        and supports_block(block)
        and all(
            _no_position(attention.scheme)
            and unwrap(attention.kernel) in (fused, fast)
            and isinstance(attention.project, nn.Linear)
            and isinstance(attention.query_norm, nn.Identity)
            and isinstance(attention.key_norm, nn.Identity)
            for attention in (block.attention, block.cross_attention)
        )
        for block in model.decoder.blocks
    )


def _no_position(scheme: Position) -> bool:
    """Whether the scheme does nothing inside attention."""
    hooks = ("rotate", "bias", "score")
    return all(getattr(type(scheme), hook) is getattr(Position, hook) for hook in hooks)


class Branching(Growing):
    """Targets of sources (B, S), whose versions branch."""

    def __init__(
        self,
        model: Seq2Seq,
        config: Seq2SeqConfig,
        source: Tensor,
        attention_mask: Tensor | None = None,
        beams: int = 1,
    ) -> None:
        super().__init__(model, config, len(source), beams)
        assert config.marks is not None
        self.start = config.marks.start
        caches = [cache for cache in self.memory if isinstance(cache, StaticKVCache)]
        self.tree = Tree(model, model.encode(source, attention_mask), caches, len(source) * beams)

    def first(self) -> Tensor:
        return self.step(torch.full((self.sentences,), self.start, device=self.device))

    def step(self, tokens: Tensor) -> Tensor:
        self.make_room(self.beams)
        return self.logits(self.tree(tokens))

    def widen(self, beams: int) -> None:
        self.beams = beams
        self.tree.widen(beams)

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        self.tree.copy(sources, targets)

    def select(self, sentences: Tensor) -> None:
        self.sentences = len(sentences)
        self.tree.select(sentences)


class Tree:
    """The decoder for one more token of each version, given the caches of the sentences."""

    def __init__(
        self, model: Seq2Seq, source: Source, caches: list[StaticKVCache], rows: int
    ) -> None:
        self.embedding = model.target_embedding
        self.norm = norm_function(model.decoder.norm)
        self.caches = caches
        self.sources = list(source.caches)
        self.step = Step()
        self.step.source_mask = _added(source.attention_mask, caches[0].buffer)
        self.layers = []
        for block, cache, frozen in zip(model.decoder.blocks, caches, self.sources, strict=True):
            assert isinstance(block, DecoderBlock)
            parts = (
                (self_attention(block.attention, cache, self.step, rows), block.attention_norm),
                (
                    cross_attention(block.cross_attention, frozen, self.step, rows),
                    block.cross_attention_norm,
                ),
                (feed_forward(block.feed_forward, rows), block.feed_forward_norm),
            )
            self.layers.append(layer(block, parts))
        buffer = caches[0].buffer
        self.came_by = torch.ones(len(buffer), 0, dtype=torch.bool, device=buffer.device)  # (R, K)
        self.length = 0  # tokens of each version
        self.versions = 1

    def __call__(self, tokens: Tensor) -> Tensor:
        """Hidden states (R, E) of one more token for each row (R,)."""
        x = self.embedding(tokens[:, None], start=self.length)[:, 0]  # (R, E)
        sentences, versions = len(tokens) // self.versions, self.versions
        own = torch.eye(versions, dtype=torch.bool, device=tokens.device)  # (W, W)
        own = own.repeat(sentences, 1)  # (R, W)
        self.came_by = torch.cat((self.came_by, own), dim=1)  # (R, K)
        self.step.start = self.caches[0].length
        mask = _added(self.came_by, x) if versions > 1 else None
        self.step.masks = [None if mask is None else mask.view(sentences, 1, versions, -1)]
        for each in self.layers:
            x = each(x)
        for cache in self.caches:
            cache.length += versions
        self.length += 1
        return self.norm(x)

    def widen(self, versions: int) -> None:
        """So many versions of each sentence from here on."""
        self.versions = versions
        self.came_by = self.came_by.repeat_interleave(versions, dim=0)

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """The rows `targets` become versions that the rows `sources` are."""
        self.came_by[targets] = self.came_by[sources]
        self._drop()

    def select(self, sentences: Tensor) -> None:
        """Go on with these sentences alone."""
        kept = self.came_by.unflatten(0, (-1, self.versions))[sentences]
        self.came_by = kept.flatten(0, 1)
        for cache in self.caches:
            cache.select(sentences)
        select_sources(self.sources, sentences)
        mask = self.step.source_mask
        self.step.source_mask = None if mask is None else mask[sentences]

    def _drop(self) -> None:
        """Leave out the tokens that no version came by, once that makes a difference."""
        alive = self.came_by.unflatten(0, (-1, self.versions)).any(dim=1)  # (B, K)
        most = int(alive.sum(dim=1).max())
        if most > WORTH * alive.shape[1]:
            return
        # The living first, in their order; a sentence with fewer fills up with dead ones.
        order = alive.int().argsort(dim=1, descending=True, stable=True)[:, :most]  # (B, most)
        rows = order.repeat_interleave(self.versions, dim=0)
        self.came_by = self.came_by.gather(1, rows)
        places = order[:, None, :, None]
        for cache in self.caches:
            where = places.expand(-1, cache.keys.shape[1], -1, cache.keys.shape[3])
            for room in (cache.keys, cache.values):
                room[:, :, :most] = room.gather(2, where)
            cache.length = most


def _added(attention_mask: Tensor | None, like: Tensor) -> Tensor | None:
    """What torch's attention adds to the scores, in their dtype: (B, K) to (B, 1, 1, K)."""
    if attention_mask is None:
        return None
    hidden = like.new_zeros(attention_mask.shape).masked_fill_(~attention_mask, -math.inf)
    return hidden[:, None, None, :]
