"""Configs of norms and activations, which create their modules.

Your own is a frozen dataclass derived from `Norm` or `Activation`. torch is imported only when a
module is made, so a config costs nothing to read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor, nn

ActivationName = Literal["relu", "gelu", "gelu_tanh", "silu", "squared_relu", "swiglu"]


@dataclass(frozen=True, kw_only=True)
class Norm(ABC):
    """Base of norms."""

    @abstractmethod
    def module(self, width: int) -> nn.Module:
        """The module that normalizes vectors of `width` numbers."""


@dataclass(frozen=True, kw_only=True)
class LayerNorm(Norm):
    """Mean zero, variance one, then a learned scale and shift."""

    epsilon: float = 1e-5

    def module(self, width: int) -> nn.Module:
        from torch import nn

        return nn.LayerNorm(width, eps=self.epsilon)


@dataclass(frozen=True, kw_only=True)
class RMSNorm(Norm):
    """Mean square one, then a learned scale."""

    epsilon: float = 1e-6

    def module(self, width: int) -> nn.Module:
        from clearformer.extensions.layers import RMSNorm

        return RMSNorm(width, eps=self.epsilon)


class Activation(ABC):
    """Base of activations of your own: a value that is called with a tensor."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """One number for each number."""

    def feed_forward(self, width: int, hidden: int, *, bias: bool, dropout: float) -> nn.Module:
        """The feed-forward layer of a block; a gated one overrides this."""
        from clearformer.core.block import FeedForward

        return FeedForward(width, hidden, self, bias=bias, dropout=dropout)
