"""Causal convolutions in the place of a stack of blocks: the other peer of the design section.

Embedding, head, data, optimizer and schedule stay those of the transformer beside it, as for the
LSTM (lstm.py). Its layers reach back `layers * (KERNEL - 1)` tokens.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.builder import embedding, head
from clearformer.config import AnyModelConfig, ModelConfig, NoPosition
from clearformer.core.cache import Cache
from clearformer.core.model import Transformer
from clearformer.core.patterns import Full, Pattern
from clearformer.core.stack import Stack

KERNEL = 4


class Layer(nn.Module):
    """Norm, causal convolution, ReLU, and a residual connection around them."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.convolution = nn.Conv1d(width, width, KERNEL)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(self.norm(x).transpose(1, 2), (KERNEL - 1, 0))  # (B, E, T + K - 1)
        y = torch.relu(self.convolution(padded)).transpose(1, 2)  # (B, T, E)
        return x + self.dropout(y)


class Convolutional(Stack):
    """Layers of convolutions where blocks would be."""

    def __init__(self, width: int, layers: int, dropout: float) -> None:
        super().__init__([], [Full()], nn.LayerNorm(width))
        self.layers = nn.Sequential(*(Layer(width, dropout) for _ in range(layers)))

    def forward(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
        structure: Pattern | None = None,
    ) -> Tensor:
        y: Tensor = self.norm(self.layers(x))
        return y  # (B, T, E)


def convolution(config: AnyModelConfig, seed: int) -> Transformer:
    """A convolutional model for the same task; `config.layers` are its convolutions."""
    assert isinstance(config, ModelConfig)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        table = nn.Embedding(config.vocabulary, config.width)
        plain = replace(config, position=NoPosition())
        stack = Convolutional(config.width, config.layers, config.dropout.residual)
        return Transformer(embedding(plain, table), stack, head(plain, table))
