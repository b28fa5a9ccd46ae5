"""One more token through all layers as one flat function: what blocks do, without the way there.

For a small model the time of a step is not arithmetic but Python: modules that call modules.
This is `core.block.Block` and `core.attention.Attention` for a single query and a `KVCache`,
written out, with what is the same in all layers (angles, masks) made once. It is tested equal
to them; whatever it does not know (other pasts, other positions) stays theirs.

Axes: B batch, H heads, G key heads, K keys, D head width, E model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import unwrap

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.block import Block, FeedForward, GatedFeedForward, post_norm, pre_norm
from clearformer.core.kernels import blockwise, fused
from clearformer.core.layout import QuickLinear, by_one_dnn, in_pieces, one_dnn, packed_product
from clearformer.core.model import Transformer
from clearformer.core.past import KVCache, Past
from clearformer.core.patterns import Causal, Pattern
from clearformer.core.positions import ALiBi, Position, Rotary

MANY = 64  # rows for which a packed copy of a matrix pays, though it is made for one batch

Function = Callable[[Tensor], Tensor]
Turn = tuple[Tensor, Tensor]  # cosines and sines (D/2,) of the place at hand
Layer = Callable[[Tensor, int, Turn | None, Tensor | None], Tensor]


def understands(model: Transformer, pasts: Sequence[Past]) -> bool:
    """Whether all of this model is written out here."""
    return (
        all(type(past) is KVCache for past in pasts)
        and not model.training
        and all(
            type(block) is Block
            and block.residual in (pre_norm, post_norm)
            and type(block.feed_forward) in (FeedForward, GatedFeedForward)
            and type(block.attention.position) in (Position, Rotary, ALiBi)
            # A single query makes one row of the table, sparse or not.
            and unwrap(block.attention.kernel) in (fused, blockwise)
            and all(_same_for_all(each, block.attention.heads) for each in model.stack.patterns)
            for block in model.stack.blocks
        )
    )


def _same_for_all(pattern: Pattern, heads: int) -> bool:
    """Whether every head of every sequence follows one rule."""
    return len(pattern.by_head(heads)) == len(pattern.by_row(1)) == 1


class Flat:
    """The stack of a model for one token at a time, given its caches."""

    def __init__(self, model: Transformer, pasts: Sequence[KVCache]) -> None:
        self.stack = model.stack
        self.pasts = pasts
        blocks = [block for block in self.stack.blocks if isinstance(block, Block)]
        layers = [_layer(block, past) for block, past in zip(blocks, pasts, strict=True)]
        first = blocks[0].attention
        self.position = first.position
        self.half = first.head_width // 2
        patterns = [self.stack.pattern(layer) for layer in range(len(blocks))]
        self.patterns = list(dict.fromkeys(patterns))  # a mask for each, made once a token
        kinds = [self.patterns.index(each) for each in patterns]
        self.steps = list(zip(layers, kinds, strict=True))

    def __call__(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """Hidden states (B, 1, E) of embedded tokens (B, 1, E); keep is (B, K)."""
        place = self.pasts[0].length
        turn = self._turn(place, x)
        bias = self._bias(place, x)
        masks = [_mask(pattern, place, keep, bias, x) for pattern in self.patterns]
        y = x[:, 0]  # (B, E)
        for layer, kind in self.steps:
            y = layer(y, place, turn, masks[kind])
        for past in self.pasts:
            past.pending = 1
        return self.stack.norm(y)[:, None]

    def _turn(self, place: int, x: Tensor) -> Turn | None:
        if not isinstance(self.position, Rotary):
            return None
        # Asked of the position itself: whatever turns a 1 and a 0 turns every pair.
        ones = torch.cat((x.new_ones(self.half), x.new_zeros(self.half)))[None, None, None]
        turned = self.position.turn(ones, torch.tensor([place], device=x.device))
        cosine, sine = turned[0, 0, 0].chunk(2)
        return cosine, sine  # each (D/2,)

    def _bias(self, place: int, x: Tensor) -> Tensor | None:
        if not isinstance(self.position, ALiBi):
            return None
        keys = x.new_empty(1, 1, place + 1, 1)
        _, bias = self.position.score(x.new_empty(1, 1, 1, 1), keys)
        return bias  # (H, 1, K)


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


def _layer(block: Block, past: KVCache) -> Layer:
    attend = _attend(block.attention, past)
    consider = think(block.feed_forward, rows=past.keys.shape[0])
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


def _attend(attention: Attention, past: KVCache) -> Layer:
    heads, key_heads, width = attention.heads, attention.key_heads, attention.head_width
    parts, all_heads = [heads, key_heads, key_heads], heads + 2 * key_heads
    rows = past.keys.shape[0]
    project, output = product(attention.project, rows), product(attention.output, rows)
    query_norm, key_norm = (
        None if isinstance(norm, nn.Identity) else norm_function(norm)
        for norm in (attention.query_norm, attention.key_norm)
    )
    grouped = heads != key_heads

    def attend(x: Tensor, place: int, turn: Turn | None, mask: Tensor | None) -> Tensor:
        batch = x.shape[0]
        q, k, v = project(x).view(batch, all_heads, width).split_with_sizes(parts, 1)
        if query_norm is not None:
            q = query_norm(q)
        if key_norm is not None:
            k = key_norm(k)
        if turn is not None:
            q, k = _turned(q, turn), _turned(k, turn)
        # Taken from the cache each time: leaving out rows gives it other tensors.
        past.keys.select(2, place).copy_(k)
        past.values.select(2, place).copy_(v)
        y = F.scaled_dot_product_attention(
            q.unsqueeze(2),
            past.keys.narrow(2, 0, place + 1),
            past.values.narrow(2, 0, place + 1),
            mask,
            enable_gqa=grouped,
        )  # (B, H, 1, D)
        return output(y.view(batch, -1))  # (B, E)

    return attend


def _turned(x: Tensor, turn: Turn) -> Tensor:
    cosine, sine = turn
    first, second = x.chunk(2, -1)  # each (B, H, D/2)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


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
