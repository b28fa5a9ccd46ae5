"""The transformer block: attention mixes tokens, the feed-forward layer transforms each of them.

Around each of the two goes a residual connection and a norm. Which comes first is a value:
`post_norm` as in the seeds and the original paper, `pre_norm` as in GPT-2 and after. So is how
a part is run: `direct`, or by a function that keeps less for the backward pass.

Axes: B batch, T tokens, E model width, F hidden width.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.cache import NO_CACHE, Cache
from clearformer.core.masks import Mask

Activation = Callable[[Tensor], Tensor]
Part = Callable[[Tensor], Tensor]
Residual = Callable[[Tensor, Part, nn.Module, nn.Module], Tensor]
Run = Callable[..., Tensor]


def direct(part: nn.Module, *arguments: object) -> Tensor:
    """Call the part; torch keeps what the backward pass will need."""
    return part(*arguments)


def post_norm(x: Tensor, part: Part, norm: nn.Module, dropout: nn.Module) -> Tensor:
    """Eq. 14: add, then normalise. The stack's output is normalised as it is."""
    return norm(x + dropout(part(x)))


def pre_norm(x: Tensor, part: Part, norm: nn.Module, dropout: nn.Module) -> Tensor:
    """Eq. 15: normalise, then add. The residual path from input to output has no norm."""
    return x + dropout(part(norm(x)))


class FeedForward(nn.Module):
    """A small network, applied to each token independently (eq. 16)."""

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation = F.relu,
        *,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        # As rows: with a batch axis a compiled backward pass saves the activation's sign twice.
        rows = x.reshape(-1, x.shape[-1])  # (B*T, E)
        hidden = self.dropout(self.activation(self.up(rows)))  # (B*T, F)
        return self.down(hidden).view_as(x)  # (B, T, E)


class GatedFeedForward(nn.Module):
    """Two projections, one gating the other: SwiGLU when the activation is SiLU (eq. 22)."""

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation = F.silu,
        *,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * hidden, bias=bias)  # gate and value in one product
        self.down = nn.Linear(hidden, width, bias=bias)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, dim=-1)  # each (B, T, F)
        return self.down(self.dropout(self.activation(gate) * value))  # (B, T, E)


class Block(nn.Module):
    """Self-attention, then feed-forward."""

    run: Run = staticmethod(direct)  # its attention

    def __init__(
        self,
        attention: Attention,
        feed_forward: nn.Module,
        norms: tuple[nn.Module, nn.Module],
        residual: Residual = post_norm,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm, self.feed_forward_norm = norms
        self.feed_forward = feed_forward
        self.residual = residual
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Mask, cache: Cache = NO_CACHE) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.run(self.attention, x, mask, cache)

        x = self.residual(x, attend, self.attention_norm, self.dropout)
        return self.residual(x, self.feed_forward, self.feed_forward_norm, self.dropout)


class DecoderBlock(nn.Module):
    """Self-attention, cross-attention, feed-forward: the original decoder's block."""

    run: Run = staticmethod(direct)  # its attentions

    def __init__(
        self,
        attention: Attention,
        cross_attention: Attention,
        feed_forward: nn.Module,
        norms: tuple[nn.Module, nn.Module, nn.Module],
        residual: Residual = post_norm,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.cross_attention = cross_attention
        self.attention_norm, self.cross_attention_norm, self.feed_forward_norm = norms
        self.feed_forward = feed_forward
        self.residual = residual
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, mask: Mask, cache: Cache, source_mask: Mask, source: Cache
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.run(self.attention, x, mask, cache)

        def attend_to_source(x: Tensor) -> Tensor:
            return self.run(self.cross_attention, x, source_mask, source)

        x = self.residual(x, attend, self.attention_norm, self.dropout)
        x = self.residual(x, attend_to_source, self.cross_attention_norm, self.dropout)
        return self.residual(x, self.feed_forward, self.feed_forward_norm, self.dropout)
