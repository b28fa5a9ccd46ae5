"""Versions of a target as paths in a tree of tokens: beams without moving a single key.

A beam search keeps the best versions of each sentence, and in each step some versions end and
others branch. Kept as rows of a cache, most of its content would be copied in every step. Here a
sentence has one cache for all its versions: a step adds one token for each of them, and a mask
says which tokens a version came by. To branch is to copy a row of that mask. What no version came
by any more is dropped when there is enough of it.

It is `core.block.DecoderBlock` for one more token, written out as in `flat.py`, and tested equal
to it; whatever it does not know (other positions in the decoder, other patterns) stays there.

Axes: B sentences, W versions of each, R = B x W rows, H heads, G key heads, D head width,
K tokens in a sentence's cache, S source tokens, E model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import unwrap

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.config import Seq2SeqConfig
from clearformer.core.attention import Attention
from clearformer.core.block import DecoderBlock, FeedForward, GatedFeedForward, post_norm, pre_norm
from clearformer.core.cache import FrozenKV, KVCache
from clearformer.core.kernels import fused
from clearformer.core.model import Seq2Seq, Source
from clearformer.core.patterns import Causal
from clearformer.core.positions import Position
from clearformer.inference.beam_state import Growing
from clearformer.inference.fast_decode import Function, norm_function, product, think
from clearformer.kernels.fast import fast

WORTH = 0.8  # what is left of a cache for dropping the rest to pay
Part = Callable[[Tensor, Tensor | None], Tensor]


def understands(model: Seq2Seq) -> bool:
    """Whether all of this model's decoder is written out here."""
    return all(isinstance(each, Causal) for each in model.decoder.patterns) and all(
        isinstance(block, DecoderBlock)
        and block.residual in (pre_norm, post_norm)
        and type(block.feed_forward) in (FeedForward, GatedFeedForward)
        and all(
            type(attention.position) is Position
            and unwrap(attention.kernel) in (fused, fast)
            and isinstance(attention.project, nn.Linear)
            and isinstance(attention.query_norm, nn.Identity)
            and isinstance(attention.key_norm, nn.Identity)
            for attention in (block.attention, block.cross_attention)
        )
        for block in model.decoder.blocks
    )


class Branching(Growing):
    """Targets of sources (B, S), whose versions branch."""

    def __init__(
        self,
        model: Seq2Seq,
        config: Seq2SeqConfig,
        source: Tensor,
        keep: Tensor | None = None,
        beams: int = 1,
    ) -> None:
        super().__init__(model, config, len(source), beams)
        assert config.marks is not None
        self.start = config.marks.start
        caches = [cache for cache in self.memory if isinstance(cache, KVCache)]
        self.tree = Tree(model, model.encode(source, keep), caches, len(source) * beams)

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

    def __init__(self, model: Seq2Seq, source: Source, caches: list[KVCache], rows: int) -> None:
        self.model = model
        self.caches = caches
        self.sources = list(source.caches)
        self.source_mask = _added(source.keep, caches[0].keys)  # (B, 1, 1, S)
        blocks = [block for block in model.decoder.blocks if isinstance(block, DecoderBlock)]
        self.layers = [
            _layer(block, cache, source, rows)
            for block, cache, source in zip(blocks, caches, self.sources, strict=True)
        ]
        self.final = norm_function(model.decoder.norm)
        keys = caches[0].keys
        self.came_by = torch.ones(len(keys), 0, dtype=torch.bool, device=keys.device)  # (R, K)
        self.length = 0  # tokens of each version
        self.versions = 1

    def __call__(self, tokens: Tensor) -> Tensor:
        """Hidden states (R, E) of one more token for each row (R,)."""
        x = self.model.target_embedding(tokens[:, None], start=self.length)[:, 0]  # (R, E)
        sentences, versions = len(tokens) // self.versions, self.versions
        own = torch.eye(versions, dtype=torch.bool, device=tokens.device)  # (W, W)
        own = own.repeat(sentences, 1)  # (R, W)
        self.came_by = torch.cat((self.came_by, own), dim=1)  # (R, K)
        mask = None
        if versions > 1:
            mask = _added(self.came_by, x).view(sentences, 1, versions, -1)  # type: ignore[union-attr]
        for layer in self.layers:
            x = layer(x, mask, self.source_mask)
        for cache in self.caches:
            cache.length += versions
        self.length += 1
        return self.final(x)

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
        for cache in (*self.caches, *self.sources):
            cache.select(sentences)
        self.source_mask = None if self.source_mask is None else self.source_mask[sentences]

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


def _added(keep: Tensor | None, like: Tensor) -> Tensor | None:
    """What torch's attention adds to the scores, in their dtype: (B, K) to (B, 1, 1, K)."""
    if keep is None:
        return None
    hidden = like.new_zeros(keep.shape).masked_fill_(~keep, -math.inf)
    return hidden[:, None, None, :]


def _layer(
    block: DecoderBlock, cache: KVCache, source: FrozenKV, rows: int
) -> Callable[[Tensor, Tensor | None, Tensor | None], Tensor]:
    attend = _attend(block.attention, cache, rows)
    look = _look(block.cross_attention, source, rows)
    consider = think(block.feed_forward, rows)
    first, second, third = map(
        norm_function, (block.attention_norm, block.cross_attention_norm, block.feed_forward_norm)
    )
    if block.residual is pre_norm:

        def layer(x: Tensor, mask: Tensor | None, source_mask: Tensor | None) -> Tensor:
            x = x + attend(first(x), mask)  # eq. 15
            x = x + look(second(x), source_mask)
            return x + consider(third(x))

    else:

        def layer(x: Tensor, mask: Tensor | None, source_mask: Tensor | None) -> Tensor:
            x = first(x + attend(x, mask))  # eq. 14
            x = second(x + look(x, source_mask))
            return third(x + consider(x))

    return layer


def _attend(attention: Attention, cache: KVCache, rows: int) -> Part:
    """Each version looks at the tokens that it came by."""
    heads, key_heads, width = attention.heads, attention.key_heads, attention.head_width
    sizes = [heads * width, key_heads * width, key_heads * width]
    project, output = product(attention.project, rows), product(attention.output, rows)

    def attend(x: Tensor, mask: Tensor | None) -> Tensor:
        start, sentences = cache.length, cache.keys.shape[0]
        q, k, v = (
            each.view(sentences, -1, count, width).transpose(1, 2)
            for each, count in zip(
                project(x).split(sizes, -1), (heads, key_heads, key_heads), strict=True
            )
        )  # (B, H, W, D), (B, G, W, D), (B, G, W, D)
        end = start + k.shape[2]
        cache.keys[:, :, start:end] = k
        cache.values[:, :, start:end] = v
        y = F.scaled_dot_product_attention(
            q,
            cache.keys.narrow(2, 0, end),
            cache.values.narrow(2, 0, end),
            mask,
            enable_gqa=heads != key_heads,
        )  # (B, H, W, D)
        return output(y.transpose(1, 2).reshape(len(x), -1))  # (R, E)

    return attend


def _look(attention: Attention, source: FrozenKV, rows: int) -> Part:
    """All versions look at their sentence's source."""
    heads, width = attention.heads, attention.head_width
    queries = slice(0, heads * width)
    bias = None if attention.project.bias is None else attention.project.bias[queries]
    project: Function = product(attention.project.weight[queries], rows, bias)
    output = product(attention.output, rows)

    def look(x: Tensor, mask: Tensor | None) -> Tensor:
        q = project(x).view(source.keys.shape[0], -1, heads, width).transpose(1, 2)  # (B, H, W, D)
        y = F.scaled_dot_product_attention(
            q, source.keys, source.values, mask, enable_gqa=heads != attention.key_heads
        )
        return output(y.transpose(1, 2).reshape(len(x), -1))  # (R, E)

    return look
