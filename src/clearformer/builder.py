"""Builds the modules of a model from its config.

Every choice in a config is a value, which selects a class here. A model gets
the fast forms of core's kernels and of the loss over a vocabulary (`kernels/`), which compute the
same numbers. Weights are drawn on the CPU before anything is moved or wrapped, so they depend on
the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, assert_never, cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from clearformer import config as c
from clearformer.core import cache, heads, init, kernels
from clearformer.core.attention import Attention
from clearformer.core.block import (
    Activation,
    Block,
    DecoderBlock,
    FeedForward,
    GatedFeedForward,
    Residual,
    post_norm,
    pre_norm,
)
from clearformer.core.embedding import Embedding
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.core.positions import NoPosition, Position
from clearformer.core.stack import DecoderStack, Stack
from clearformer.extensions import heads as more_heads
from clearformer.extensions import init as more_inits
from clearformer.extensions.embedding import NeighbourEmbedding
from clearformer.extensions.layers import gelu_tanh, squared_relu
from clearformer.extensions.ngrams import NgramScores, NgramTransformer
from clearformer.kernels.blockwise import blockwise, never_compiled
from clearformer.kernels.causal_xl import causal_form
from clearformer.kernels.fast import fast
from clearformer.kernels.vocabulary_loss import in_chunks, with_target_padded

RESIDUALS: dict[str, Residual] = {"pre": pre_norm, "post": post_norm}
FEED_FORWARDS: dict[str, tuple[type[FeedForward] | type[GatedFeedForward], Activation]] = {
    "relu": (FeedForward, F.relu),
    "gelu": (FeedForward, F.gelu),
    "gelu_tanh": (FeedForward, gelu_tanh),
    "silu": (FeedForward, F.silu),
    "squared_relu": (FeedForward, squared_relu),
    "swiglu": (GatedFeedForward, F.silu),
}
KERNELS: dict[str, Callable[[], kernels.Kernel]] = {
    "fused": lambda: fast,
    # Its tiles are found by plain Python, which torch.compile would follow for minutes.
    "blockwise": lambda: never_compiled(blockwise),
    "explicit": lambda: kernels.explicit,
    "loop": lambda: kernels.loop,
}
INITS: dict[str, Callable[[nn.Module], None]] = {
    "torch_default": init.torch_default,
    "xavier": init.xavier,
    "normal": init.normal,
    "gpt2": init.gpt2,
    "transformer_xl": more_inits.transformer_xl,
    "sparse": more_inits.sparse,
    "modern": more_inits.modern,
}


def build(config: c.AnyModelConfig, seed: int = 0) -> Transformer | Seq2Seq:
    """Build the model that a config describes.

    Args:
        config (ModelConfig): What the model is, as a family or `preset` returns it.
        seed (int): Seed of the initial weights. Default: 0.

    Returns:
        Transformer or Seq2Seq: A plain ``nn.Module``, in training mode.

    Example:
        >>> import clearformer as cf
        >>> module = cf.build(cf.families.modern("tiny"), seed=0)
    """
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
    """Skips initialization on the meta device, where for `normal_` torch would first load
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
    stack = Stack(blocks, config.patterns, final_norm(config))
    parts, output = (embedding(config, table), stack), head(config, table)
    if config.ngrams is None:
        return Transformer(*parts, output)
    scores, classifier = ngrams(config.ngrams, config.head.classes), cast(heads.Head, output)
    return NgramTransformer(*parts, classifier, scores, config.ngrams.head_weight)


def seq2seq(config: c.Seq2SeqConfig) -> Seq2Seq:
    table = nn.Embedding(config.vocabulary, config.width)
    sees_all = replace(config, patterns=(c.Full(),))
    encoder = Stack(
        [block(sees_all) for _ in range(config.layers)], sees_all.patterns, final_norm(config)
    )
    decoder = DecoderStack(
        [decoder_block(config) for _ in range(config.decoder_layers)],
        config.patterns,
        final_norm(config),
    )
    return Seq2Seq(
        embedding(config, table), encoder, embedding(config, table), decoder, head(config, table)
    )


def caches(config: c.AnyModelConfig) -> list[cache.Cache]:
    """A new cache for each (decoder) layer; `inference.caches` has faster ones."""
    layers = config.decoder_layers if isinstance(config, c.Seq2SeqConfig) else config.layers
    match config.cache:
        case c.KVCache():
            return [cache.KVCache() for _ in range(layers)]
        case c.HiddenMemory(length=length):
            return [cache.HiddenMemory(length) for _ in range(layers)]
        case None:
            raise ValueError(f"{config.name} looks at whole sequences and keeps no cache")
        case _:
            assert_never(config.cache)


def block(config: c.ModelConfig) -> Block:
    return Block(
        attention(config, position(config)),
        feed_forward(config),
        (norm(config.norm, config.width), norm(config.norm, config.width)),
        RESIDUALS[config.residual],
        config.dropout.residual,
    )


def decoder_block(config: c.ModelConfig) -> DecoderBlock:
    return DecoderBlock(
        attention(config, position(config)),
        # Positions of two sequences do not compare, so cross-attention has no position scheme.
        attention(config, NoPosition()),
        feed_forward(config),
        (
            norm(config.norm, config.width),
            norm(config.norm, config.width),
            norm(config.norm, config.width),
        ),
        RESIDUALS[config.residual],
        config.dropout.residual,
    )


def attention(config: c.ModelConfig, position: Position) -> Attention:
    return Attention(
        config.width,
        config.heads,
        key_heads=config.key_heads,
        head_width=config.head_width,
        bias=config.biases.attention,
        output=attention_output(config),
        position=position,
        query_norm=norm(config.query_key_norm, config.resolved_head_width),
        key_norm=norm(config.query_key_norm, config.resolved_head_width),
        kernel=KERNELS[config.kernel](),
        dropout=config.dropout.attention,
    )


def attention_output(config: c.ModelConfig) -> Callable[[int, int], nn.Module]:
    if config.attention_output == "none":
        return nn.Identity
    return partial(nn.Linear, bias=config.biases.attention_output)


def feed_forward(config: c.ModelConfig) -> nn.Module:
    bias, dropout = config.biases.feed_forward, config.dropout.hidden
    match config.activation:
        case str(name):
            layer, function = FEED_FORWARDS[name]
            return layer(config.width, config.hidden, function, bias=bias, dropout=dropout)
        case own:
            return own.feed_forward(config.width, config.hidden, bias=bias, dropout=dropout)


def activation(config: c.ModelConfig) -> Activation:
    match config.activation:
        case str(name):
            return FEED_FORWARDS[name][1]
        case own:
            return own


def norm(config: c.Norm | None, width: int) -> nn.Module:
    return nn.Identity() if config is None else config.module(width)


def final_norm(config: c.ModelConfig) -> nn.Module:
    """The final norm of a pre-norm stack, whose last block ends with a sum."""
    return norm({"pre": config.norm, "post": None}[config.residual], config.width)


def embedding(config: c.ModelConfig, table: nn.Embedding) -> Embedding:
    kind: Callable[..., Embedding] = Embedding
    if config.neighbours is not None or config.dropout.token:
        buckets = None if config.neighbours is None else config.neighbours.buckets
        kind = partial(NeighbourEmbedding, neighbours=buckets, token_dropout=config.dropout.token)
    return kind(
        table,
        config.length,
        position=config.position,
        segments=config.segments,
        scale=config.scale,
        norm=norm(config.embedding_norm, config.width),
        dropout=config.dropout.embedding,
    )


def ngrams(chosen: c.Ngrams, classes: int) -> NgramScores:
    return NgramScores(chosen.longest, chosen.buckets, classes, chosen.scale, chosen.weight)


def position(config: c.ModelConfig) -> Position:
    """The position scheme in its fastest form."""
    causal = all(each.is_causal for each in config.patterns)
    return causal_form(config.position) if causal else config.position


def head(config: c.ModelConfig, table: nn.Embedding) -> nn.Module:
    match config.head:
        case c.NextToken(tied=tied, cap=cap):
            project = vocabulary(config, table, config.biases.head, tied)
            return heads.NextToken(project, cap, in_chunks)
        case c.MaskedToken():
            return masked_token(config, table)
        case c.Pretraining():
            return more_heads.Pretraining(masked_token(config, table), next_sentence(config))
        case c.Features(pool=pool):
            return more_heads.Features(pooling(pool, config.width))
        case c.Regressor(pool=pool, bias=bias, mean=mean, std=std):
            pooled = pooling(pool, config.width), pooled_width(config)
            return more_heads.Regressor(*pooled, config.dropout.residual, bias, mean, std)
        case c.MultiLabelClassifier(pool=pool, classes=classes, bias=bias):
            pooled = pooling(pool, config.width), pooled_width(config)
            return more_heads.MultiLabelClassifier(*pooled, classes, config.dropout.residual, bias)
        case c.Classifier(pool=pool, classes=classes, bias=bias):
            pooled = pooling(pool, config.width), pooled_width(config)
            return heads.Classifier(*pooled, classes, config.dropout.residual, bias)
        case c.TokenClassifier(classes=classes, bias=bias):
            return more_heads.TokenClassifier(config.width, classes, config.dropout.residual, bias)
        case c.AnswerSpan():
            return more_heads.AnswerSpan(config.width)
        case c.NextSentence():
            return next_sentence(config)
        case c.MultipleChoice():
            return heads.Classifier(
                more_heads.Pooler(config.width), config.width, 1, config.dropout.residual
            )
        case _:
            assert_never(config.head)


def next_sentence(config: c.ModelConfig) -> heads.Classifier:
    return heads.Classifier(more_heads.Pooler(config.width), config.width, classes=2)


def masked_token(config: c.ModelConfig, table: nn.Embedding) -> heads.MaskedToken:
    return heads.MaskedToken(
        config.width,
        activation(config),
        norm(config.norm, config.width),
        vocabulary(config, table, bias=True, tied=True),
        in_chunks,
        with_target_padded,
    )


def pooled_width(config: c.ModelConfig) -> int:
    """The width of what a head pools: mean and maximum are concatenated."""
    return config.width * (2 if config.head.pool == "mean_max" else 1)


def pooling(name: str, width: int) -> heads.Pool:
    if name == "pooler":
        return more_heads.Pooler(width)
    return {
        "mean": heads.mean_pool,
        "max": more_heads.max_pool,
        "mean_max": more_heads.mean_max_pool,
        "first": heads.first_pool,
        "last": more_heads.last_pool,
    }[name]


def vocabulary(config: c.ModelConfig, table: nn.Embedding, bias: bool, tied: bool) -> nn.Linear:
    """From hidden states to the vocabulary: with the embedding's own weight, or another."""
    project = nn.Linear(config.width, config.vocabulary, bias=bias)
    if tied:
        project.weight = table.weight
    return project
