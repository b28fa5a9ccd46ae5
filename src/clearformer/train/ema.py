"""A running average of the weights: smoother than any single step, used to evaluate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """decay * average + (1 - decay) * weights, after each step."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        # Early on the average follows quickly: it must forget where training began.
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, parameter in model.named_parameters():
            self.weights[name].lerp_(parameter, 1 - decay)

    @torch.no_grad()
    def load(
        self,
        weights: Mapping[str, Tensor],
        part: Callable[[Tensor, Tensor], Tensor] = lambda whole, like: whole,
    ) -> None:
        """Take over whole weights, or the `part` of them that is in this process."""
        for name, own in self.weights.items():
            own.copy_(part(weights[name], own))

    @contextmanager
    def lent_to(self, model: nn.Module) -> Iterator[None]:
        """The model with averaged weights for a while; its own come back afterwards."""
        own = {name: p.detach().clone() for name, p in model.named_parameters()}
        self._into(model, self.weights)
        try:
            yield
        finally:
            self._into(model, own)

    @torch.no_grad()
    def _into(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
