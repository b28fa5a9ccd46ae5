"""Decoding of one token for each of several sequences, which all have caches of their own.

The sequences may have different lengths and join and leave at any time. Matrix products are
computed for all of them together, attention for each alone. A product by oneDNN gives a row the
same bits whatever the other rows are, if there are at least two; so one sequence alone is computed
as two rows, and what a sequence gets does not depend on its company, to the last bit (on a CPU in
float32; elsewhere up to rounding).

Axes: R sequences, H heads, G key heads, K keys, D head width, E model width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.block import Block
from clearformer.core.heads import NextToken, capped
from clearformer.core.model import Transformer
from clearformer.core.positions import Position
from clearformer.inference.caches import StaticKVCache
from clearformer.inference.fast_decode import (
    embed_function,
    feed_forward,
    layer,
    norm_function,
    position_mask,
    product,
    rotate_pairs,
    rotations,
)

SEVERAL = 2  # rows that products are chosen for: at least two, see above


class RaggedStep:
    """Values that all layers share in one step."""

    caches: Sequence[Sequence[StaticKVCache]] = ()  # of each sequence, for each layer
    # Cosines (R, 1, D) of each sequence's position, and sines, negative in the first half.
    rotation: tuple[Tensor, Tensor] | None = None
    masks: Sequence[Sequence[Tensor | None]] = ()  # of each sequence, for each pattern


class RaggedDecoder:
    """A model for one token of each sequence, given their caches; see `fast_decode.supports`."""

    def __init__(self, model: Transformer) -> None:
        assert isinstance(model.head, NextToken)
        self.embedding, self.stack = model.embedding, model.stack
        self.positions = 0  # of the embedding's table
        self.embed: Callable[[Tensor, int | Tensor], Tensor] | None = None
        self.norm = norm_function(model.stack.norm)
        self.project, self.cap = product(model.head.project, SEVERAL), model.head.cap
        self.step = RaggedStep()
        patterns = [self.stack.pattern(place) for place in range(len(self.stack.blocks))]
        self.patterns = list(dict.fromkeys(patterns))
        self.layers = []
        for place, (block, pattern) in enumerate(zip(self.stack.blocks, patterns, strict=True)):
            assert isinstance(block, Block)
            self.attention = block.attention
            attend = ragged_attention(
                block.attention, self.step, place, self.patterns.index(pattern)
            )
            parts = (
                (attend, block.attention_norm),
                (feed_forward(block.feed_forward, SEVERAL), block.feed_forward_norm),
            )
            self.layers.append(layer(block, parts))

    @torch.inference_mode()
    def __call__(self, tokens: Tensor, caches: Sequence[Sequence[StaticKVCache]]) -> Tensor:
        """Logits (R, V) of what follows tokens (R,), which are added to the caches."""
        count = len(tokens)
        lengths = [each[0].length for each in caches]
        if count == 1:
            tokens, lengths = tokens.expand(2), lengths * 2
        positions = torch.tensor(lengths, device=tokens.device)  # (R,)
        x = self._embedded(tokens, positions)  # (R, E)
        scheme = self.attention.scheme
        if type(scheme).rotate is not Position.rotate:
            cosine, sine = rotations(scheme, positions, x, self.attention.head_width)
            self.step.rotation = cosine[:, None], sine[:, None]
        self.step.caches = caches
        self.step.masks = [self._masks(length, x) for length in lengths[:count]]
        for each in self.layers:
            x = each(x)
        for several in caches:
            for cache in several:
                cache.length += 1
        return capped(self.project(self.norm(x)), self.cap)[:count]

    def _masks(self, length: int, x: Tensor) -> list[Tensor | None]:
        """For each pattern, the mask of the token after `length` others."""
        bias = self.attention.scheme.bias(self.attention.heads, 1, length + 1, x)  # (H, 1, K)
        return [position_mask(pattern, length, None, bias, x) for pattern in self.patterns]

    def _embedded(self, tokens: Tensor, positions: Tensor) -> Tensor:
        needed = int(positions.max()) + 1
        if needed > self.positions:
            self.positions = max(needed, 2 * self.positions)
            if self.embedding.max_length is not None:
                self.positions = self.embedding.max_length
            self.embed = embed_function(self.embedding, self.positions)
        if self.embed is not None:
            return self.embed(tokens, positions)  # (R, E)
        rows = zip(tokens, positions.tolist(), strict=True)
        return torch.cat(
            [self.embedding(token.view(1, 1), start=place)[:, 0] for token, place in rows]
        )


def ragged_attention(
    attention: Attention, step: RaggedStep, place: int, pattern: int
) -> Callable[[Tensor], Tensor]:
    """Attention of each sequence's newest token (R, E) to its own cache, which it is added to."""
    heads, key_heads, width = attention.heads, attention.key_heads, attention.head_width
    project, output = product(attention.project, SEVERAL), product(attention.output, SEVERAL)
    norms = attention.query_norm, attention.key_norm
    normed = not all(isinstance(norm, nn.Identity) for norm in norms)
    query_norm, key_norm = map(norm_function, norms)
    rotates = type(attention.scheme).rotate is not Position.rotate
    grouped = heads != key_heads

    def attend(x: Tensor) -> Tensor:
        projected = project(x).view(len(x), heads + 2 * key_heads, width)  # (R, H + 2G, D)
        both, v = projected.split_with_sizes([heads + key_heads, key_heads], 1)
        if normed:
            q, k = both.split_with_sizes([heads, key_heads], 1)
            both = torch.cat((query_norm(q), key_norm(k)), 1)
        if rotates:
            both = rotate_pairs(both, step.rotation)
        q, k = both.split_with_sizes([heads, key_heads], 1)
        new = torch.stack((k, v), 1)  # (R, 2, G, D)
        y = q.new_zeros(len(x), heads * width)
        for row, (caches, masks) in enumerate(zip(step.caches, step.masks, strict=True)):
            buffer, length = caches[place].buffer, caches[place].length  # (1, 2, G, capacity, D)
            buffer.select(3, length)[0].copy_(new[row])
            keys, values = buffer.narrow(3, 0, length + 1).unbind(1)  # each (1, G, K, D)
            attended = F.scaled_dot_product_attention(
                q[row][None, :, None], keys, values, masks[pattern], enable_gqa=grouped
            )  # (1, H, 1, D)
            y[row] = attended.flatten()
        return output(y)  # (R, E)

    return attend
