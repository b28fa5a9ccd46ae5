"""Tree-structured cache for beam search: beams share keys and values instead of copying them.

In each step of a beam search some beams end and others branch. With a row of a cache for each beam,
most of the cache would be copied in every step. Here a sentence has one cache for all its beams: a
step adds one token for each beam, and a mask says which tokens are ancestors of which beam. To
branch is to copy a row of that mask. Tokens that are no longer an ancestor of any beam are removed
from time to time.

The decoder's blocks are those of `fast_decode`; models with other parts (see `supports`) keep
their beams as rows of a cache (`beam_state.TranslationBeams`).

Axes: B sentences, W beams of each, R = B x W rows, H heads, G key heads, D head width,
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
from clearformer.inference.beam_state import BeamState
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

COMPACT_BELOW = 0.8  # share of live tokens below which a cache is compacted


def supports(model: Seq2Seq) -> bool:
    """Whether all parts of this model's decoder are implemented here."""
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
    """Whether the position scheme does nothing inside attention."""
    hooks = ("rotate", "bias", "score")
    return all(getattr(type(scheme), hook) is getattr(Position, hook) for hook in hooks)


class TreeBeams(BeamState):
    """Beams for the targets of sources (B, S), in a tree."""

    def __init__(
        self,
        model: Seq2Seq,
        config: Seq2SeqConfig,
        start_id: int,
        source: Tensor,
        attention_mask: Tensor | None = None,
        beams: int = 1,
    ) -> None:
        super().__init__(model, config, len(source), beams)
        self.start_id = start_id
        caches = [cache for cache in self.memory if isinstance(cache, StaticKVCache)]
        self.tree = Tree(model, model.encode(source, attention_mask), caches, len(source) * beams)

    def first(self) -> Tensor:
        return self.step(torch.full((self.sentences,), self.start_id, device=self.device))

    def step(self, tokens: Tensor) -> Tensor:
        self.reserve(self.beams)
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
    """The decoder for one more token of each beam, with the caches of the sentences."""

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
        self.ancestry = torch.ones(len(buffer), 0, dtype=torch.bool, device=buffer.device)  # (R, K)
        self.length = 0  # tokens of each beam
        self.beams = 1

    def __call__(self, tokens: Tensor) -> Tensor:
        """Hidden states (R, E) of one more token for each row (R,)."""
        x = self.embedding(tokens[:, None], start=self.length)[:, 0]  # (R, E)
        sentences, beams = len(tokens) // self.beams, self.beams
        new_tokens = torch.eye(beams, dtype=torch.bool, device=tokens.device)  # (W, W)
        new_tokens = new_tokens.repeat(sentences, 1)  # (R, W)
        self.ancestry = torch.cat((self.ancestry, new_tokens), dim=1)  # (R, K)
        self.step.start = self.caches[0].length
        mask = _added(self.ancestry, x) if beams > 1 else None
        self.step.masks = [None if mask is None else mask.view(sentences, 1, beams, -1)]
        for each in self.layers:
            x = each(x)
        for cache in self.caches:
            cache.length += beams
        self.length += 1
        return self.norm(x)

    def widen(self, beams: int) -> None:
        """Use this number of beams for each sentence from now on."""
        self.beams = beams
        self.ancestry = self.ancestry.repeat_interleave(beams, dim=0)

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Replace the rows `targets` by the rows `sources`."""
        self.ancestry[targets] = self.ancestry[sources]
        self._compact()

    def select(self, sentences: Tensor) -> None:
        """Continue with these sentences only."""
        ancestry = self.ancestry.unflatten(0, (-1, self.beams))[sentences]
        self.ancestry = ancestry.flatten(0, 1)
        for cache in self.caches:
            cache.select(sentences)
        select_sources(self.sources, sentences)
        mask = self.step.source_mask
        self.step.source_mask = None if mask is None else mask[sentences]

    def _compact(self) -> None:
        """Remove tokens that are no ancestor of any beam, if there are enough of them."""
        alive = self.ancestry.unflatten(0, (-1, self.beams)).any(dim=1)  # (B, K)
        length = int(alive.sum(dim=1).max())
        if length > COMPACT_BELOW * alive.shape[1]:
            return
        # Live tokens first, in order; sentences with fewer of them are padded with dead ones.
        order = alive.int().argsort(dim=1, descending=True, stable=True)[:, :length]  # (B, most)
        rows = order.repeat_interleave(self.beams, dim=0)
        self.ancestry = self.ancestry.gather(1, rows)
        index = order[:, None, :, None]
        for cache in self.caches:
            expanded = index.expand(-1, cache.keys.shape[1], -1, cache.keys.shape[3])
            for tensor in (cache.keys, cache.values):
                tensor[:, :, :length] = tensor.gather(2, expanded)
            cache.length = length


def _added(attention_mask: Tensor | None, like: Tensor) -> Tensor | None:
    """An additive attention mask, in the dtype of the scores: (B, K) to (B, 1, 1, K)."""
    if attention_mask is None:
        return None
    hidden = like.new_zeros(attention_mask.shape).masked_fill_(~attention_mask, -math.inf)
    return hidden[:, None, None, :]
