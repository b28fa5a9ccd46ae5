"""From a config to modules: the only place that knows both.

Every choice in a config is a value; here each value picks the class that does it. Weights are
drawn on the CPU before anything is moved or wrapped, so they depend on the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, assert_never

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from clearformer import config as c
from clearformer.core import cache, heads, init, kernels, patterns, positions, structures
from clearformer.core.attention import Attention
from clearformer.core.block import (
    Activation,
    Block,
    DecoderBlock,
    FeedForward,
    GatedFeedForward,
    Residual,
    RMSNorm,
    gelu_tanh,
    post_norm,
    pre_norm,
    relu,
    squared_relu,
)
from clearformer.core.embedding import Embedding, Neighbours
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.core.stack import DecoderStack, Stack

RESIDUALS: dict[str, Residual] = {"pre": pre_norm, "post": post_norm}
ACTIVATIONS: dict[str, Activation] = {
    "relu": relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
    "squared_relu": squared_relu,
    "swiglu": F.silu,
}
FEED_FORWARDS: dict[str, type[FeedForward] | type[GatedFeedForward]] = {
    "relu": FeedForward,
    "gelu": FeedForward,
    "gelu_tanh": FeedForward,
    "silu": FeedForward,
    "squared_relu": FeedForward,
    "swiglu": GatedFeedForward,
}
ROTARIES: dict[str, type[positions.Rotary]] = {
    "halves": positions.Rotary,
    "neighbours": positions.NeighbourRotary,
}
WAVES: dict[str, positions.Waves] = {
    "turns": positions.taking_turns,
    "halves": positions.in_halves,
}
KERNELS: dict[str, Callable[[], kernels.Kernel]] = {
    "fused": lambda: kernels.fused,
    # Its tiles are found by plain Python, which torch.compile would follow for minutes.
    "blockwise": lambda: kernels.never_compiled(kernels.blockwise),
    "explicit": lambda: kernels.explicit,
    "loop": lambda: kernels.loop,
}
INITS: dict[str, Callable[[nn.Module], None]] = {
    "torch_default": init.torch_default,
    "xavier": init.xavier,
    "normal": init.normal,
    "gpt2": init.gpt2,
    "transformer_xl": init.transformer_xl,
    "sparse": init.sparse,
    "modern": init.modern,
}


def build(config: c.AnyModelConfig, seed: int = 0) -> Transformer | Seq2Seq:
    """The model that `config` describes, its weights drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = assemble(config)
        INITS[config.init](model)
    return model


def assemble(config: c.AnyModelConfig) -> Transformer | Seq2Seq:
    """The modules of a model, with the initial weights that torch gives them."""
    return seq2seq(config) if isinstance(config, c.Seq2SeqConfig) else transformer(config)


def outline(config: c.AnyModelConfig) -> Transformer | Seq2Seq:
    """The same model without memory for its weights: shapes and counts only."""
    with torch.device("meta"), NothingDrawn():
        return assemble(config)


class NothingDrawn(TorchFunctionMode):
    """Where there is no memory there is nothing to draw, and for `normal_` torch would first load
    its compiler, which takes longer than reading a whole checkpoint.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in (nn.init.normal_, torch.Tensor.normal_):
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def transformer(config: c.ModelConfig) -> Transformer:
    table = nn.Embedding(config.vocabulary, config.width)
    blocks = [block(config) for _ in range(config.layers)]
    stack = Stack(blocks, [pattern(p) for p in config.patterns], final_norm(config))
    return Transformer(embedding(config, table), stack, head(config, table))


def seq2seq(config: c.Seq2SeqConfig) -> Seq2Seq:
    table = nn.Embedding(config.vocabulary, config.width)
    sees_all = replace(config, patterns=(c.Full(),))
    encoder = Stack(
        [block(sees_all) for _ in range(config.layers)], [patterns.Full()], final_norm(config)
    )
    decoder = DecoderStack(
        [decoder_block(config) for _ in range(config.decoder_layers)],
        [pattern(p) for p in config.patterns],
        final_norm(config),
    )
    return Seq2Seq(
        embedding(config, table), encoder, embedding(config, table), decoder, head(config, table)
    )


def pasts(
    config: c.AnyModelConfig,
    batch: int,
    capacity: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> list[cache.Past]:
    """A fresh past for each (decoder) layer, for `batch` sequences of up to `capacity` tokens."""
    layers = config.decoder_layers if isinstance(config, c.Seq2SeqConfig) else config.layers
    match config.past:
        case c.KVCache():
            room = (batch, config.key_heads or config.heads, capacity, config.head_width)
            return [cache.KVCache(*room, dtype=dtype, device=device) for _ in range(layers)]
        case c.HiddenMemory(length=length):
            return [cache.HiddenMemory(length) for _ in range(layers)]
        case None:
            raise ValueError(f"{config.name} looks at whole sequences and keeps no past")
        case _:
            assert_never(config.past)


def resting_pasts(
    config: c.AnyModelConfig,
    batch: int,
    capacity: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> list[cache.Past]:
    """The same for a model that learns nothing meanwhile: a memory is not projected anew."""
    if isinstance(config.past, c.HiddenMemory):
        return [cache.KVMemory(config.past.length) for _ in range(config.layers)]
    return pasts(config, batch, capacity, dtype, device)


def block(config: c.ModelConfig) -> Block:
    return Block(
        attention(config, score_position(config)),
        feed_forward(config),
        (norm(config.norm, config.width), norm(config.norm, config.width)),
        RESIDUALS[config.residual],
        config.dropout.residual,
    )


def decoder_block(config: c.ModelConfig) -> DecoderBlock:
    return DecoderBlock(
        attention(config, score_position(config)),
        # Places of two sequences do not compare, so cross-attention has no position scheme.
        attention(config, positions.Position()),
        feed_forward(config),
        (
            norm(config.norm, config.width),
            norm(config.norm, config.width),
            norm(config.norm, config.width),
        ),
        RESIDUALS[config.residual],
        config.dropout.residual,
    )


def attention(config: c.ModelConfig, position: positions.Position) -> Attention:
    return Attention(
        config.width,
        config.heads,
        key_heads=config.key_heads,
        per_head=config.per_head,
        bias=config.biases.attention,
        output_bias=config.biases.attention_output,
        position=position,
        query_norm=norm(config.query_key_norm, config.head_width),
        key_norm=norm(config.query_key_norm, config.head_width),
        kernel=KERNELS[config.kernel](),
        dropout=config.dropout.attention,
    )


def feed_forward(config: c.ModelConfig) -> nn.Module:
    return FEED_FORWARDS[config.activation](
        config.width,
        config.hidden,
        ACTIVATIONS[config.activation],
        bias=config.biases.feed_forward,
        dropout=config.dropout.hidden,
    )


def norm(config: c.Norm | None, width: int) -> nn.Module:
    match config:
        case c.LayerNorm(epsilon=epsilon):
            return nn.LayerNorm(width, eps=epsilon)
        case c.RMSNorm(epsilon=epsilon):
            return RMSNorm(width, eps=epsilon)
        case None:
            return nn.Identity()
        case _:
            assert_never(config)


def final_norm(config: c.ModelConfig) -> nn.Module:
    """A pre-norm stack ends on a bare sum and needs one norm more."""
    return norm({"pre": config.norm, "post": None}[config.residual], config.width)


def embedding(config: c.ModelConfig, table: nn.Embedding) -> Embedding:
    return Embedding(
        table,
        position=added_position(config),
        segment=nn.Embedding(config.segments, config.width) if config.segments else None,
        neighbours=neighbours(config),
        scale=config.scale,
        norm=norm(config.embedding_norm, config.width),
        dropout=config.dropout.embedding,
        token_dropout=config.dropout.token,
    )


def neighbours(config: c.ModelConfig) -> Neighbours | None:
    pairs = config.neighbours
    return None if pairs is None else Neighbours(pairs.buckets, config.width)


def added_position(config: c.ModelConfig) -> nn.Module | None:
    """The position scheme that is added to the embeddings, if that is where it acts."""
    match config.position:
        case c.Learned():
            return positions.Learned(config.length, config.width)
        case c.Sinusoidal(order=order):
            return positions.Sinusoidal(config.width, WAVES[order])
        case c.Grid(columns=columns):
            return positions.Grid(-(-config.length // columns), columns, config.width)
        case c.NoPosition() | c.Rotary() | c.RelativeXL() | c.ALiBi():
            return None
        case _:
            assert_never(config.position)


def score_position(config: c.ModelConfig) -> positions.Position:
    """The position scheme that acts on the scores, if that is where it acts."""
    match config.position:
        case c.Rotary(base=base, pairs=pairs, scaling=scaling):
            return ROTARIES[pairs](base, frequencies(scaling))
        case c.RelativeXL():
            behind = all(looks_behind(each) for each in config.patterns)
            kind = positions.RelativeBehind if behind else positions.RelativeXL
            return kind(config.width, config.heads)
        case c.ALiBi():
            return positions.ALiBi(config.heads)
        case c.NoPosition() | c.Learned() | c.Sinusoidal() | c.Grid():
            return positions.Position()
        case _:
            assert_never(config.position)


def looks_behind(config: c.Pattern) -> bool:
    """Whether nobody can look ahead under this pattern, as far as its form tells."""
    match config:
        case c.Causal():
            return True
        case c.Both(first=first, second=second):
            return looks_behind(first) or looks_behind(second)
        case c.Either(first=first, second=second):
            return looks_behind(first) and looks_behind(second)
        case c.PerHead(patterns=several):
            return all(looks_behind(each) for each in several)
        case _:
            return False


def frequencies(scaling: c.Slower | c.SlowerBelow | None) -> positions.Frequencies:
    match scaling:
        case c.Slower(factor=factor):
            return positions.slower(factor)
        case c.SlowerBelow(factor=factor, low=low, high=high, length=length):
            return positions.slower_below(factor, low, high, length)
        case None:
            return positions.unchanged
        case _:
            assert_never(scaling)


def pattern(config: c.Pattern) -> patterns.Pattern:
    match config:
        case c.Full():
            return patterns.Full()
        case c.Causal():
            return patterns.Causal()
        case c.Local(window=window):
            return patterns.Local(window)
        case c.Strided(stride=stride):
            return patterns.Strided(stride)
        case c.Row(width=width):
            return patterns.Row(width)
        case c.Fixed(stride=stride, summary=summary):
            return patterns.Fixed(stride, summary)
        case c.Graph(edges=edges, nodes=nodes):
            return patterns.Graph(edges, nodes)
        case c.Both(first=first, second=second):
            return pattern(first) & pattern(second)
        case c.Either(first=first, second=second):
            return pattern(first) | pattern(second)
        case c.Region(queries=queries, keys=keys):
            return structures.Region(queries, keys)
        case c.Shifted(pattern=inner, by=by):
            return structures.Shifted(pattern(inner), by)
        case c.PerHead(patterns=several):
            return structures.PerHead(tuple(pattern(each) for each in several))
        case _:
            assert_never(config)


def head(config: c.ModelConfig, table: nn.Embedding) -> nn.Module:
    match config.head:
        case c.NextToken(tied=tied, cap=cap):
            return heads.NextToken(vocabulary(config, table, config.biases.head, tied), cap)
        case c.MaskedToken():
            return masked_token(config, table)
        case c.Pretraining():
            return heads.Pretraining(masked_token(config, table), heads.NextSentence(config.width))
        case c.Features(pool=pool):
            return heads.Features(pooling(pool, config.width))
        case c.Classifier(classes=classes, pool=pool, bias=bias):
            width = config.width * (2 if pool == "mean_max" else 1)
            return heads.Classifier(
                pooling(pool, config.width), width, classes, config.dropout.residual, bias
            )
        case c.TokenClassifier(classes=classes, bias=bias):
            return heads.TokenClassifier(config.width, classes, config.dropout.residual, bias)
        case c.AnswerSpan():
            return heads.TokenClassifier(config.width, classes=2)
        case c.NextSentence():
            return heads.NextSentence(config.width)
        case c.MultipleChoice():
            return heads.Classifier(
                heads.Pooler(config.width), config.width, 1, config.dropout.residual
            )
        case _:
            assert_never(config.head)


def masked_token(config: c.ModelConfig, table: nn.Embedding) -> heads.MaskedToken:
    return heads.MaskedToken(
        config.width,
        ACTIVATIONS[config.activation],
        norm(config.norm, config.width),
        vocabulary(config, table, bias=True, tied=True),
    )


def pooling(name: str, width: int) -> heads.Pool:
    if name == "pooler":
        return heads.Pooler(width)
    return {
        "mean": heads.mean_pool,
        "max": heads.max_pool,
        "mean_max": heads.mean_max_pool,
        "first": heads.first_pool,
        "last": heads.last_pool,
    }[name]


def vocabulary(config: c.ModelConfig, table: nn.Embedding, bias: bool, tied: bool) -> nn.Linear:
    """From hidden states to the vocabulary: with the embedding's own weight, or another."""
    project = nn.Linear(config.width, config.vocabulary, bias=bias)
    if tied:
        project.weight = table.weight
    return project
