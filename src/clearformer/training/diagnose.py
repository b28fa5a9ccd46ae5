"""Diagnosis of NaN and of a loss that does not fall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.distributed.parallel import Model

BACKWARD = "the backward pass (every output is finite)"


def first_non_finite(model: Model, batches: Sequence[Any]) -> str | None:
    """The name of the first module whose output is not finite on these batches, if any."""
    broken: list[str] = []

    def check(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not broken and isinstance(output, Tensor) and not torch.isfinite(output).all():
                broken.append(name)

        return hook

    hooks = [
        module.register_forward_hook(check(name))
        for name, module in model.named_modules()
        if not any(module.children())
    ]
    try:
        with torch.no_grad():
            for batch in batches:
                model.loss(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return broken[0] if broken else None


def not_learning(losses: Sequence[float], chance: float) -> str | None:
    """A sentence if the recent loss is no better than that of a uniform guess, `chance`."""
    if len(losses) < 50:
        return None
    recent = sum(losses[-20:]) / 20
    if recent > 0.99 * chance:
        return (
            f"the loss stays at {recent:.3f}, no better than a uniform guess ({chance:.3f}): try "
            f"another learning rate, and check the data"
        )
    return None
