"""An LSTM in place of a stack of blocks, as a baseline.

Embedding, head, data, optimizer and schedule stay those of the transformer beside it, so
that one thing differs. Its width and layers are chosen for the same number of parameters.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from clearformer.builder import embedding, head
from clearformer.config import AnyModelConfig, Causal, ModelConfig, NoPosition
from clearformer.core.cache import Cache
from clearformer.core.model import Transformer
from clearformer.core.patterns import Full, Pattern
from clearformer.core.stack import Stack


class Recurrent(Stack):
    """`torch.nn.LSTM` where a stack of blocks would be; both directions if nothing is causal."""

    def __init__(self, width: int, layers: int, both_directions: bool, dropout: float) -> None:
        super().__init__([], [Full()], nn.Identity())
        self.lstm = nn.LSTM(
            width,
            width // 2 if both_directions else width,
            layers,
            batch_first=True,
            bidirectional=both_directions,
            dropout=dropout,
        )

    def forward(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
        structure: Pattern | None = None,
    ) -> Tensor:
        y: Tensor = self.lstm(x)[0]
        return y  # (B, T, E)


def lstm(config: AnyModelConfig, seed: int) -> Transformer:
    """A recurrent model for the same task; `config.layers` are layers of the LSTM."""
    import torch

    assert isinstance(config, ModelConfig)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        table = nn.Embedding(config.vocabulary, config.width)
        plain = replace(config, position=NoPosition())
        both = not isinstance(config.patterns[0], Causal)
        stack = Recurrent(config.width, config.layers, both, config.dropout.residual)
        return Transformer(embedding(plain, table), stack, head(plain, table))
