"""Initial weights of three later recipes, as published.

Each takes a finished model and initializes its weights again, as those of `core.init` do.
"""

import math
from collections.abc import Iterator

import torch
from torch import nn

from clearformer.core.attention import Attention
from clearformer.core.heads import NextToken
from clearformer.core.init import normal, residual_writers, zero_bias


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
            zero_bias(module)
    with torch.no_grad():
        writers = list(residual_writers(model))
        for writer in writers:
            writer.weight.mul_(1 / math.sqrt(len(writers)))
        for project in _own_outputs(model):
            project.weight.zero_()


def modern(model: nn.Module) -> None:
    """Each block starts as the identity: residual writers zero, other matrices N(0, 1/fan-in)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            zero_bias(module)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=1.0)
    for writer in residual_writers(model):
        nn.init.zeros_(writer.weight)
    for project in _own_outputs(model):
        nn.init.normal_(project.weight, std=0.02)


def _own_outputs(model: nn.Module) -> Iterator[nn.Linear]:
    """The matrices from hidden states to the vocabulary that are not the embedding's."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, NextToken) and id(module.project.weight) not in embeddings:
            yield module.project
