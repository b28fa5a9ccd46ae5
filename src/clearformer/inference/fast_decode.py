"""One more token through a model as one flat function: what blocks do, without the way there.

For a small model the time of a step is not arithmetic but Python: modules that call modules.
This is `core.block.Block` and `core.attention.Attention` for a single query and a `KVCache`,
written out, with what is the same in all layers (angles, masks) made once. It is tested equal
to them; whatever it does not know (other caches, other positions) stays theirs.

Axes: B batch, H heads, G key heads, K keys, D head width, E model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import unwrap
from types import NoneType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.block import Block, FeedForward, GatedFeedForward, post_norm, pre_norm
from clearformer.core.cache import Cache, KVCache
from clearformer.core.embedding import Embedding
from clearformer.core.heads import NextToken
from clearformer.core.kernels import fused
from clearformer.core.model import Transformer
from clearformer.core.patterns import Causal, Pattern
from clearformer.core.positions import ALiBi, Learned, Position, Rotary
from clearformer.inference.packed_linear import (
    QuickLinear,
    by_one_dnn,
    in_pieces,
    one_dnn,
    packed_product,
)
from clearformer.kernels.blockwise import blockwise
from clearformer.kernels.fast import fast

MANY = 64  # rows for which a packed copy of a matrix pays, though it is made for one batch

Function = Callable[[Tensor], Tensor]
# Cosines (D,) of the place at hand, and sines (D,), those of the first halves negative.
Turn = tuple[Tensor, Tensor]
Layer = Callable[[Tensor, int, Turn | None, Tensor | None], Tensor]


def understands(model: Transformer, caches: Sequence[Cache]) -> bool:
    """Whether all of this model is written out here."""
    return (
        all(type(cache) is KVCache for cache in caches)
        and not model.training
        and all(
            type(block) is Block
            and block.residual in (pre_norm, post_norm)
            and type(block.feed_forward) in (FeedForward, GatedFeedForward)
            and type(block.attention.position) in (Position, Rotary, ALiBi)
            # A single query makes one row of the table, sparse or not.
            and unwrap(block.attention.kernel) in (fused, fast, blockwise)
            and all(_same_for_all(each, block.attention.heads) for each in model.stack.patterns)
            for block in model.stack.blocks
        )
    )


def _same_for_all(pattern: Pattern, heads: int) -> bool:
    """Whether every head of every sequence follows one rule."""
    return len(pattern.by_head(heads)) == len(pattern.by_row(1)) == 1


class Flat:
    """A model for one token at a time, given its caches."""

    def __init__(self, model: Transformer, caches: Sequence[KVCache]) -> None:
        assert isinstance(model.head, NextToken)
        rows, _, _, capacity, _ = caches[0].room.shape
        self.stack = model.stack
        self.caches = caches
        self.embedding = model.embedding
        self.embed = _embed(model.embedding, capacity)
        self.final = norm_function(model.stack.norm)
        self.project, self.capped = product(model.head.project, rows), model.head.capped
        blocks = [block for block in self.stack.blocks if isinstance(block, Block)]
        layers = [_layer(block, cache) for block, cache in zip(blocks, caches, strict=True)]
        first = blocks[0].attention
        self.position = first.position
        self.half = first.head_width // 2
        patterns = [self.stack.pattern(layer) for layer in range(len(blocks))]
        self.patterns = list(dict.fromkeys(patterns))  # a mask for each, made once a token
        kinds = [self.patterns.index(each) for each in patterns]
        self.steps = list(zip(layers, kinds, strict=True))

    def __call__(self, tokens: Tensor, keep: Tensor | None) -> Tensor:
        """Logits (B, V) of what follows tokens (B,); keep is (B, K)."""
        place = self.caches[0].length
        if self.embed is None or keep is not None:
            x = self.embedding(tokens[:, None], keep, start=place)[:, 0]  # (B, E)
        else:
            x = self.embed(tokens, place)  # (B, E)
        turn = self._turn(place, x)
        bias = self._bias(place, x)
        masks = [_mask(pattern, place, keep, bias, x) for pattern in self.patterns]
        for layer, kind in self.steps:
            x = layer(x, place, turn, masks[kind])
        for cache in self.caches:
            cache.pending = 1
        return self.capped(self.project(self.final(x)))

    def _turn(self, place: int, x: Tensor) -> Turn | None:
        if not isinstance(self.position, Rotary):
            return None
        # Asked of the position itself: whatever turns a 1 and a 0 turns every pair.
        ones = torch.cat((x.new_ones(self.half), x.new_zeros(self.half)))[None, None, None]
        turned = self.position.turn(ones, torch.tensor([place], device=x.device))
        cosine, sine = turned[0, 0, 0].chunk(2)  # each (D/2,)
        return torch.cat((cosine, cosine)), torch.cat((-sine, sine))  # each (D,)

    def _bias(self, place: int, x: Tensor) -> Tensor | None:
        if not isinstance(self.position, ALiBi):
            return None
        keys = x.new_empty(1, 1, place + 1, 1)
        _, bias = self.position.score(x.new_empty(1, 1, 1, 1), keys)
        return bias  # (H, 1, K)


def _embed(embedding: Embedding, capacity: int) -> Callable[[Tensor, int], Tensor] | None:
    """Vectors (B, E) of tokens (B,) that stand at a place; None for what is not written out."""
    token, position, scale = embedding.token, embedding.position, embedding.scale
    if (
        type(token) is not nn.Embedding
        or type(position) not in (NoneType, Learned)
        or embedding.segment is not None
        or embedding.neighbours is not None
    ):
        return None
    table = token.weight  # (V, E)
    places = position.table.weight if isinstance(position, Learned) else None  # (length, E)
    if places is not None and len(places) < capacity:
        return None  # the position itself says what is wrong
    norm = norm_function(embedding.norm)

    def embed(tokens: Tensor, place: int) -> Tensor:
        x = torch.embedding(table, tokens)
        if scale != 1.0:
            x = x * scale
        return norm(x if places is None else x + places[place])

    return embed


def _mask(
    pattern: Pattern, place: int, keep: Tensor | None, bias: Tensor | None, x: Tensor
) -> Tensor | None:
    """What is hidden from the token at `place`, as torch's attention takes it."""
    shown: Tensor | None = None
    if keep is not None or not isinstance(pattern, Causal):
        key = torch.arange(place + 1, device=x.device)[None]  # (1, K)
        query = key[:, -1:]
        if keep is not None:
            first = keep.int().argmax(dim=1)[:, None]  # (B, 1)
            key, query = key - first, query - first
        shown = pattern.allows(query, key)  # (B or 1, K)
        shown = shown if keep is None else shown & keep
        shown = shown[:, None, None, :]  # (B or 1, 1, 1, K)
    if bias is None:
        return shown
    bias = bias.to(x.dtype)
    return bias if shown is None else bias.masked_fill(~shown, -math.inf)


def _layer(block: Block, cache: KVCache) -> Layer:
    attend = _attend(block.attention, cache)
    consider = think(block.feed_forward, rows=cache.room.shape[0])
    first, second = norm_function(block.attention_norm), norm_function(block.feed_forward_norm)
    if block.residual is pre_norm:

        def layer(x: Tensor, place: int, turn: Turn | None, mask: Tensor | None) -> Tensor:
            x = attend(first(x), place, turn, mask).add_(x)  # eq. 15
            return consider(second(x)).add_(x)

    else:

        def layer(x: Tensor, place: int, turn: Turn | None, mask: Tensor | None) -> Tensor:
            x = first(attend(x, place, turn, mask).add_(x))  # eq. 14
            return second(consider(x).add_(x))

    return layer


def _attend(attention: Attention, cache: KVCache) -> Layer:
    heads, key_heads, width = attention.heads, attention.key_heads, attention.head_width
    rows, all_heads = cache.room.shape[0], heads + 2 * key_heads
    project, output = product(attention.project, rows), product(attention.output, rows)
    remember = _remember(attention)
    grouped = heads != key_heads

    def attend(x: Tensor, place: int, turn: Turn | None, mask: Tensor | None) -> Tensor:
        batch = x.shape[0]
        # Taken from the cache each time: leaving out rows gives it another tensor.
        room = cache.room  # (B, 2, G, capacity, D)
        q = remember(project(x).view(batch, all_heads, 1, width), room.narrow(3, place, 1), turn)
        keys, values = room.narrow(3, 0, place + 1).unbind(1)  # each (B, G, K, D)
        y = F.scaled_dot_product_attention(
            q, keys, values, mask, enable_gqa=grouped
        )  # (B, H, 1, D)
        return output(y.view(batch, -1))  # (B, E)

    return attend


def _remember(attention: Attention) -> Callable[[Tensor, Tensor, Turn | None], Tensor]:
    """From all heads of a token (B, H + 2G, 1, D): the queries (B, H, 1, D); keys and values go to
    their place (B, 2, G, 1, D) in the cache.
    """
    heads, key_heads = attention.heads, attention.key_heads
    norms = attention.query_norm, attention.key_norm
    normed = not all(isinstance(norm, nn.Identity) for norm in norms)
    query_norm, key_norm = map(norm_function, norms)

    def as_they_are(projected: Tensor, place: Tensor, turn: Turn | None) -> Tensor:
        q, new = projected.split_with_sizes([heads, 2 * key_heads], 1)
        place.copy_(new.view(place.shape))
        return q

    def changed(projected: Tensor, place: Tensor, turn: Turn | None) -> Tensor:
        both, v = projected.split_with_sizes([heads + key_heads, key_heads], 1)
        if normed:
            q, k = both.split_with_sizes([heads, key_heads], 1)
            both = torch.cat((query_norm(q), key_norm(k)), 1)
        if turn is not None:
            cosine, sine = turn  # each (D,)
            swapped = both.roll(cosine.shape[0] // 2, -1)  # each pair's other half
            both = torch.addcmul(both * cosine, swapped, sine)
        q, k = both.split_with_sizes([heads, key_heads], 1)
        place.select(1, 0).copy_(k)
        place.select(1, 1).copy_(v)
        return q

    return changed if normed or isinstance(attention.position, Rotary) else as_they_are


def think(feed_forward: nn.Module, rows: int) -> Function:
    assert isinstance(feed_forward, FeedForward | GatedFeedForward)
    up, down = product(feed_forward.up, rows), product(feed_forward.down, rows)
    activation = feed_forward.activation
    if isinstance(feed_forward, FeedForward):
        return lambda x: down(activation(up(x)))  # eq. 16

    def gated(x: Tensor) -> Tensor:
        gate, value = up(x).chunk(2, -1)
        return down(activation(gate) * value)  # eq. 22

    return gated


def norm_function(norm: nn.Module) -> Function:
    """What a norm does, without its module in between."""
    match norm:
        case nn.LayerNorm(normalized_shape=shape, weight=weight, bias=bias, eps=epsilon):
            return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
        case nn.RMSNorm(normalized_shape=shape, weight=weight, eps=small):
            return lambda x: torch.rms_norm(x, shape, weight, small)
        case _:
            return norm.forward


def product(linear: nn.Module | Tensor, rows: int, bias: Tensor | None = None) -> Function:
    """What a matrix does to about so many rows, without its module in between."""
    if isinstance(linear, QuickLinear):
        return linear.product(rows)
    if isinstance(linear, Tensor):
        weight = linear  # (O, I)
    elif type(linear) is nn.Linear:
        weight, bias = linear.weight, linear.bias
    else:
        return linear.forward
    if by_one_dnn(weight):
        if rows == 1:
            return in_pieces(weight, bias)
        if rows >= MANY:
            return packed_product(weight, bias, rows)
        return lambda x: one_dnn(x, weight, bias)
    turned = weight.t()  # (I, O)
    if bias is None:
        return lambda x: torch.mm(x, turned)
    return lambda x: torch.addmm(bias, x, turned)
