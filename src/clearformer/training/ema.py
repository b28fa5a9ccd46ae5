"""Exponential moving average (EMA) of the weights, used for evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class EMA:
    """ema = decay * ema + (1 - decay) * weights, after each step."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: p.detach().clone() for name, p in _learning(model)}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        # A lower decay early on, so that the initial weights are soon forgotten.
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, parameter in _learning(model):
            self.weights[name].lerp_(parameter, 1 - decay)

    @torch.no_grad()
    def load(
        self,
        weights: Mapping[str, Tensor],
        shard: Callable[[Tensor, Tensor], Tensor] = lambda full, like: full,
    ) -> None:
        """Load full weights, or this rank's `shard` of them."""
        for name, value in self.weights.items():
            value.copy_(shard(weights[name], value))

    @contextmanager
    def applied_to(self, model: nn.Module) -> Iterator[None]:
        """Give the model the averaged weights inside the context."""
        trained = {name: p.detach().clone() for name, p in _learning(model)}
        self._copy(self.weights, model)
        try:
            yield
        finally:
            self._copy(trained, model)

    @torch.no_grad()
    def _copy(self, weights: Mapping[str, Tensor], model: nn.Module) -> None:
        for name, parameter in _learning(model):
            parameter.copy_(weights[name])


def _learning(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters that learn; the average of the others is what they are."""
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)
