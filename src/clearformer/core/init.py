"""Initial weights: one function for each published recipe.

Each takes a finished model and draws its weights anew. They differ in the spread of the
matrices and in how they treat the two projections that write into the residual stream
(attention's `output`, the feed-forward layer's `down`), since N layers add up there.
"""

import math
from collections.abc import Iterator

import torch
from torch import nn

from clearformer.core.attention import Attention
from clearformer.core.block import FeedForward, GatedFeedForward
from clearformer.core.heads import NextToken


def torch_default(model: nn.Module) -> None:
    """Leave what torch drew: uniform matrices, normal embeddings. The seeds' own choice."""


def xavier(model: nn.Module) -> None:
    """Vaswani et al. 2017 as released: Glorot-uniform matrices, embeddings N(0, 1/E)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            _zero_bias(module)
    for module in model.modules():
        # After the matrices: a head that shares the embedding's weight is drawn as an embedding.
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    for module in model.modules():
        if isinstance(module, Attention):
            # Queries, keys and values are three matrices that happen to lie in one.
            counts = module.heads, module.key_heads, module.key_heads
            for matrix in module.project.weight.split([n * module.head_width for n in counts]):
                nn.init.xavier_uniform_(matrix)


def normal(model: nn.Module) -> None:
    """BERT (Devlin et al. 2018): every matrix and embedding N(0, 0.02), every bias zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            _zero_bias(module)


def gpt2(model: nn.Module) -> None:
    """GPT-2 (Radford et al. 2019): as BERT, but what N layers add up starts 1/sqrt(2N) as large."""
    normal(model)
    writers = list(_residual_writers(model))
    for writer in writers:
        nn.init.normal_(writer.weight, std=0.02 / math.sqrt(len(writers)))


def transformer_xl(model: nn.Module) -> None:
    """Dai et al. 2019 as released: N(0, 0.02), the two position biases and norms included."""
    normal(model)
    for module in model.modules():
        if isinstance(module, Attention) and module.position is not None:
            for parameter in module.position.parameters(recurse=False):
                nn.init.normal_(parameter, std=0.02)
        elif isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, mean=1.0, std=0.02)


def sparse(model: nn.Module) -> None:
    """Child et al. 2019: N(0, 0.125/sqrt(fan-in)), residual writers 1/sqrt(2N), zero logits."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.125 / math.sqrt(module.embedding_dim))
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.125 / math.sqrt(module.in_features))
            _zero_bias(module)
    with torch.no_grad():
        writers = list(_residual_writers(model))
        for writer in writers:
            writer.weight.mul_(1 / math.sqrt(len(writers)))
        for project in _own_outputs(model):
            project.weight.zero_()


def modern(model: nn.Module) -> None:
    """Each block starts as the identity: residual writers zero, other matrices N(0, 1/fan-in)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            _zero_bias(module)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=1.0)
    for writer in _residual_writers(model):
        nn.init.zeros_(writer.weight)
    for project in _own_outputs(model):
        nn.init.normal_(project.weight, std=0.02)


def _residual_writers(model: nn.Module) -> Iterator[nn.Linear]:
    """The projections whose output is added to the residual stream, 2N of them."""
    for module in model.modules():
        if isinstance(module, Attention) and isinstance(module.output, nn.Linear):
            yield module.output
        elif isinstance(module, FeedForward | GatedFeedForward):
            yield module.down


def _own_outputs(model: nn.Module) -> Iterator[nn.Linear]:
    """The matrices from hidden states to the vocabulary that are not the embedding's."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, NextToken) and id(module.project.weight) not in embeddings:
            yield module.project


def _zero_bias(module: nn.Module) -> None:
    bias = getattr(module, "bias", None)
    if isinstance(bias, nn.Parameter):
        nn.init.zeros_(bias)
