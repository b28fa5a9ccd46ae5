"""Initial weights: the published recipes of the models that the seeds describe.

Each takes a finished model and initializes its weights again. They differ in the spread of the
matrices and in the two projections that write into the residual stream (attention's `output`, the
feed-forward layer's `down`), since N layers add up there.
"""

import math
from collections.abc import Iterator

from torch import nn

from clearformer.core.attention import Attention
from clearformer.core.block import FeedForward, GatedFeedForward


def torch_default(model: nn.Module) -> None:
    """Leave what torch drew: uniform matrices, normal embeddings. The seeds' own choice."""


def xavier(model: nn.Module) -> None:
    """Vaswani et al. 2017 as released: Glorot-uniform matrices, embeddings N(0, 1/E)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            zero_bias(module)
    for module in model.modules():
        # After the matrices: a head that shares the embedding's weight is drawn as an embedding.
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    for module in model.modules():
        if isinstance(module, Attention):
            # Queries, keys and values are three matrices stored as one.
            counts = module.heads, module.key_heads, module.key_heads
            for matrix in module.project.weight.split([n * module.head_width for n in counts]):
                nn.init.xavier_uniform_(matrix)


def normal(model: nn.Module) -> None:
    """BERT (Devlin et al. 2018): every matrix and embedding N(0, 0.02), every bias zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            zero_bias(module)


def gpt2(model: nn.Module) -> None:
    """GPT-2 (Radford et al. 2019): as BERT, but what N layers add up starts 1/sqrt(2N) as large."""
    normal(model)
    writers = list(residual_writers(model))
    for writer in writers:
        nn.init.normal_(writer.weight, std=0.02 / math.sqrt(len(writers)))


def residual_writers(model: nn.Module) -> Iterator[nn.Linear]:
    """The projections whose output is added to the residual stream, 2N of them."""
    for module in model.modules():
        if isinstance(module, Attention) and isinstance(module.output, nn.Linear):
            yield module.output
        elif isinstance(module, FeedForward | GatedFeedForward):
            yield module.down


def zero_bias(module: nn.Module) -> None:
    bias = getattr(module, "bias", None)
    if isinstance(bias, nn.Parameter):
        nn.init.zeros_(bias)
