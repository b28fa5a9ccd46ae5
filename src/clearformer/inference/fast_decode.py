"""Fast decoding of one token at a time, by plain functions instead of modules.

For a small model the time of a step is not arithmetic but the overhead of nested modules. This file
implements `Block`, `DecoderBlock` and `Attention` of core for a few rows and a `StaticKVCache`;
rotations and masks are computed once per step for all layers. Models with other parts (see
`supports`) are run by their modules.

Axes: B sequences with a cache of their own, W queries for each, R = B x W rows, H heads,
G key heads, K keys, S source tokens, D head width, E model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from inspect import unwrap
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.block import (
    Block,
    DecoderBlock,
    FeedForward,
    GatedFeedForward,
    post_norm,
    pre_norm,
)
from clearformer.core.cache import Cache, FrozenKV
from clearformer.core.embedding import Embedding
from clearformer.core.heads import NextToken, capped
from clearformer.core.kernels import fused
from clearformer.core.model import Transformer
from clearformer.core.patterns import Causal, Pattern
from clearformer.core.positions import Position
from clearformer.extensions.embedding import NeighbourEmbedding
from clearformer.inference.caches import StaticKVCache
from clearformer.inference.modes import has_hooks
from clearformer.inference.packed_linear import (
    HasProduct,
    onednn_linear,
    packed_product,
    split_product,
    supports_onednn,
)
from clearformer.kernels.blockwise import blockwise
from clearformer.kernels.fast import fast

POSITIONS = 256  # whose rotations are computed at a time
PACK_ROWS = 64  # rows from which packing a matrix for a single batch pays off

Function = Callable[[Tensor], Tensor]


def supports(model: Transformer, caches: Sequence[Cache]) -> bool:
    """Whether all parts of this model are implemented here."""
    return (
        all(type(cache) is StaticKVCache for cache in caches)
        and not model.training
        and not has_hooks(model)
        and all(
            type(block) is Block
            and supports_block(block)
            and supports_scheme(block.attention)
            # For a single query a sparse kernel has no advantage.
            and unwrap(block.attention.kernel) in (fused, fast, blockwise)
            and all(_same_for_all(each, block.attention.heads) for each in model.stack.patterns)
            for block in model.stack.blocks
        )
    )


def supports_block(block: Block | DecoderBlock) -> bool:
    known = type(block.feed_forward) in (FeedForward, GatedFeedForward)
    return known and block.residual in (pre_norm, post_norm)


def supports_scheme(attention: Attention) -> bool:
    """Whether its bias does not depend on the tokens, and its rotary pairs are in halves."""
    scheme, width = attention.scheme, attention.head_width
    if type(scheme).score is not Position.score:
        return False
    if type(scheme).rotate is Position.rotate:
        return True
    x, position = torch.arange(1.0, width + 1), torch.tensor([3])
    expected = scheme.rotate(x[None, None, None], position)[0, 0, 0]
    return bool(torch.allclose(rotate_pairs(x, rotations(scheme, position, x, width)), expected))


def _same_for_all(pattern: Pattern, heads: int) -> bool:
    """Whether all heads and sequences have the same pattern."""
    return len(pattern.by_head(heads)) == len(pattern.by_row(1)) == 1


def fast_decoder(model: Transformer, caches: Sequence[Cache]) -> FastDecoder | None:
    """A faster step for one token of each sequence, if all of this model is written out here."""
    known = [cache for cache in caches if isinstance(cache, StaticKVCache)]
    return FastDecoder(model, known) if supports(model, caches) else None


class Step:
    """Values that all layers share in one step."""

    start = 0  # tokens in the caches
    # Cosines (D,) of the current position, and sines (D,), negative in the first half.
    rotation: tuple[Tensor, Tensor] | None = None
    masks: Sequence[Tensor | None] = (None,)  # for each pattern, as torch's attention takes it
    source_mask: Tensor | None = None  # (B, 1, 1, S)


class FastDecoder:
    """A model for one token of each sequence at a time, given its caches."""

    def __init__(self, model: Transformer, caches: Sequence[StaticKVCache]) -> None:
        assert isinstance(model.head, NextToken)
        self.stack = model.stack
        self.caches = caches
        self.embedding = model.embedding
        self.embed = embed_function(model.embedding, caches[0].capacity)
        rows = len(caches[0].buffer)
        self.norm = norm_function(model.stack.norm)
        self.project, self.cap = product(model.head.project, rows), model.head.cap
        self.step = Step()
        self.first = 0  # position of the table
        self.table: tuple[Tensor, Tensor] | None = None  # cosines and sines (POSITIONS, D)
        patterns = [self.stack.pattern(layer) for layer in range(len(caches))]
        self.patterns = list(dict.fromkeys(patterns))  # a mask for each, made once a token
        self.layers = []
        for block, cache, pattern in zip(self.stack.blocks, caches, patterns, strict=True):
            assert isinstance(block, Block)
            self.attention = block.attention
            attend = self_attention(
                block.attention, cache, self.step, rows, self.patterns.index(pattern)
            )
            parts = (
                (attend, block.attention_norm),
                (feed_forward(block.feed_forward, rows), block.feed_forward_norm),
            )
            self.layers.append(layer(block, parts))

    def __call__(self, tokens: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Logits (B, V) of what follows tokens (B,); attention_mask is (B, K)."""
        position, step, attention = self.caches[0].length, self.step, self.attention
        if self.embed is None or attention_mask is not None:
            x = self.embedding(tokens[:, None], attention_mask, start=position)[:, 0]  # (B, E)
        else:
            x = self.embed(tokens, position)  # (B, E)
        step.start = position
        if type(attention.scheme).rotate is not Position.rotate:
            step.rotation = self._rotation(position, x)
        bias = attention.scheme.bias(attention.heads, 1, position + 1, x)  # (H, 1, K)
        step.masks = [
            position_mask(pattern, position, attention_mask, bias, x) for pattern in self.patterns
        ]
        for each in self.layers:
            x = each(x)
        for cache in self.caches:
            cache.pending = 1
        return capped(self.project(self.norm(x)), self.cap)

    def _rotation(self, position: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (D,) of a position, from a table of those around it."""
        place = position % POSITIONS
        if self.table is None or position - place != self.first:
            self.first = position - place
            around = torch.arange(self.first, self.first + POSITIONS, device=x.device)
            attention = self.attention
            self.table = rotations(attention.scheme, around, x, attention.head_width)
        cosine, sine = self.table
        return cosine[place], sine[place]


def rotations(
    scheme: Position, positions: Tensor, like: Tensor, width: int
) -> tuple[Tensor, Tensor]:
    """Cosines (T, D) of positions (T,), and sines (T, D), negative in the first half."""
    # Computed by the scheme itself, from the rotation of (1, 0).
    ones = torch.cat((like.new_ones(width // 2), like.new_zeros(width // 2)))  # (D,)
    rotated = scheme.rotate(ones.expand(1, 1, len(positions), -1), positions)
    cosine, sine = rotated[0, 0].chunk(2, -1)  # each (T, D/2)
    return torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1)


def rotate_pairs(x: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
    assert rotation is not None
    cosine, sine = rotation  # each (D,)
    other = x.roll(cosine.shape[-1] // 2, -1)  # each pair's other half
    return torch.addcmul(x * cosine, other, sine)


def embed_function(
    embedding: Embedding, capacity: int
) -> Callable[[Tensor, int | Tensor], Tensor] | None:
    """A function from tokens (B,) and their position, or positions (B,), to vectors (B, E).

    None if this embedding has other parts.
    """
    token, scale, limit = embedding.token, embedding.scale, embedding.max_length
    if (
        embedding.segment is not None
        or (isinstance(embedding, NeighbourEmbedding) and embedding.neighbours is not None)
        or (limit is not None and limit < capacity)  # the embedding says what is wrong
    ):
        return None
    # Called with ids (B,): its module, if it is not torch's, as it is.
    look_up = partial(torch.embedding, token.weight) if type(token) is nn.Embedding else token
    device = next(chain(embedding.parameters(), embedding.buffers())).device
    like = look_up(torch.zeros(1, dtype=torch.long, device=device))  # (1, E)
    positions = torch.arange(capacity, device=device)
    added = embedding.scheme.added(positions, embedding.width, embedding.position)
    position_table = None if added is None else added.to(like.dtype).to(device)  # (capacity, E)
    norm = norm_function(embedding.norm)

    def embed(tokens: Tensor, position: int | Tensor) -> Tensor:
        x = look_up(tokens)
        if scale != 1.0:
            x = x * scale
        return norm(x if position_table is None else x + position_table[position])

    return embed


def position_mask(
    pattern: Pattern, position: int, attention_mask: Tensor | None, bias: Tensor | None, x: Tensor
) -> Tensor | None:
    """The attention mask of the token at `position`, in torch's form."""
    visible: Tensor | None = None
    if attention_mask is not None or not isinstance(pattern, Causal):
        key = torch.arange(position + 1, device=x.device)[None]  # (1, K)
        query = key[:, -1:]
        if attention_mask is not None:
            first = attention_mask.int().argmax(dim=1)[:, None]  # (B, 1)
            key, query = key - first, query - first
        visible = pattern.allows(query, key)  # (B or 1, K)
        visible = visible if attention_mask is None else visible & attention_mask
        visible = visible[:, None, None, :]  # (B or 1, 1, 1, K)
    if bias is None:
        return visible
    return bias if visible is None else bias.masked_fill(~visible, -math.inf)


# --- the parts of a block ------------------------------------------------------------------------


def layer(block: Block | DecoderBlock, parts: Sequence[tuple[Function, nn.Module]]) -> Function:
    """The parts of a block with their norms, in residual connections (R, E) -> (R, E)."""
    steps = [(part, norm_function(norm)) for part, norm in parts]

    def pre(x: Tensor) -> Tensor:
        for part, norm in steps:
            x = part(norm(x)).add_(x)  # eq. 15
        return x

    def post(x: Tensor) -> Tensor:
        for part, norm in steps:
            x = norm(part(x).add_(x))  # eq. 14
        return x

    return pre if block.residual is pre_norm else post


def self_attention(
    attention: Attention, cache: StaticKVCache, step: Step, rows: int, pattern: int = 0
) -> Function:
    """Attention of each sequence's W newest tokens (R, E) to its cache, which they are added to."""
    heads, key_heads, width = attention.heads, attention.key_heads, attention.head_width
    project, output = product(attention.project, rows), product(attention.output, rows)
    norms = attention.query_norm, attention.key_norm
    normed = not all(isinstance(norm, nn.Identity) for norm in norms)
    query_norm, key_norm = map(norm_function, norms)
    rotates = type(attention.scheme).rotate is not Position.rotate
    grouped = heads != key_heads

    def attend(x: Tensor) -> Tensor:
        # Read from the cache each time: selecting rows replaces the tensor.
        buffer = cache.buffer  # (B, 2, G, capacity, D)
        projected = project(x).view(len(buffer), -1, heads + 2 * key_heads, width).transpose(1, 2)
        new = projected.shape[2]
        slots = buffer.narrow(3, step.start, new)  # (B, 2, G, W, D)
        if normed or rotates:
            both, v = projected.split_with_sizes([heads + key_heads, key_heads], 1)
            if normed:
                q, k = both.split_with_sizes([heads, key_heads], 1)
                both = torch.cat((query_norm(q), key_norm(k)), 1)
            if rotates:
                both = rotate_pairs(both, step.rotation)
            q, k = both.split_with_sizes([heads, key_heads], 1)
            slots.select(1, 0).copy_(k)
            slots.select(1, 1).copy_(v)
        else:
            q, k = projected.split_with_sizes([heads, 2 * key_heads], 1)
            slots.copy_(k.unflatten(1, (2, key_heads)))
        keys, values = buffer.narrow(3, 0, step.start + new).unbind(1)  # each (B, G, K, D)
        y = F.scaled_dot_product_attention(
            q, keys, values, step.masks[pattern], enable_gqa=grouped
        )  # (B, H, W, D)
        return output(y.transpose(1, 2).reshape(len(x), -1))  # (R, E)

    return attend


def cross_attention(attention: Attention, source: FrozenKV, step: Step, rows: int) -> Function:
    """Attention of every row (R, E) to the source of its sequence."""
    heads, width = attention.heads, attention.head_width
    queries = slice(0, heads * width)
    bias = None if attention.project.bias is None else attention.project.bias[queries]
    project = product(attention.project.weight[queries], rows, bias)
    output = product(attention.output, rows)
    grouped = heads != attention.key_heads

    def attend(x: Tensor) -> Tensor:
        q = project(x).view(len(source.keys), -1, heads, width).transpose(1, 2)  # (B, H, W, D)
        y = F.scaled_dot_product_attention(
            q, source.keys, source.values, step.source_mask, enable_gqa=grouped
        )
        return output(y.transpose(1, 2).reshape(len(x), -1))  # (R, E)

    return attend


def feed_forward(module: nn.Module, rows: int) -> Function:
    assert isinstance(module, FeedForward | GatedFeedForward)
    up, down = product(module.up, rows), product(module.down, rows)
    activation = module.activation
    if isinstance(module, FeedForward):
        return lambda x: down(activation(up(x)))  # eq. 16

    def gated(x: Tensor) -> Tensor:
        gate, value = up(x).chunk(2, -1)
        return down(activation(gate) * value)  # eq. 22

    return gated


def norm_function(norm: nn.Module) -> Function:
    """A norm as a function, without the overhead of its module."""
    match norm:
        case nn.LayerNorm(normalized_shape=shape, weight=weight, bias=bias, eps=epsilon):
            return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
        case nn.RMSNorm(normalized_shape=shape, weight=weight, eps=small):
            # In half precision torch computes in float32, which this would not; in float64 nobody
            # waits for it, and portable arithmetic has a form of torch's.
            if weight is not None and weight.dtype == torch.float32:
                return rms_norm(weight, small)
            return lambda x: torch.rms_norm(x, shape, weight, small)
        case _:
            return norm.forward


def rms_norm(weight: Tensor, epsilon: float | None) -> Function:
    """x w / sqrt(|x|^2 / E + epsilon), in half the time of torch's for a single row."""
    width, epsilon = len(weight), torch.finfo(weight.dtype).eps if epsilon is None else epsilon
    scaled = weight.detach() * math.sqrt(width)
    least = weight.new_tensor(math.sqrt(width * epsilon))

    def norm(x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, 2, -1, True)  # (..., 1)
        return (x * scaled).div_(torch.hypot(length, least))

    return norm


def product(linear: nn.Module | Tensor, rows: int, bias: Tensor | None = None) -> Function:
    """A linear layer as a function, chosen for about `rows` rows."""
    if isinstance(linear, HasProduct):
        return linear.product(rows)
    if isinstance(linear, Tensor):
        weight = linear  # (O, I)
    elif type(linear) is nn.Linear:
        weight, bias = linear.weight, linear.bias
    else:
        return linear.forward
    if supports_onednn(weight):
        if rows == 1:
            return split_product(weight, bias)
        if rows >= PACK_ROWS:
            return packed_product(weight, bias, rows)
        return lambda x: onednn_linear(x, weight, bias)
    transposed = weight.t()  # (I, O)
    if bias is None:
        return lambda x: torch.mm(x, transposed)
    return lambda x: torch.addmm(bias, x, transposed)
