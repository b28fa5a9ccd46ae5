"""What went wrong, in words: where a number stopped being one, and why nothing is learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

BACKWARD = "the backward pass (every output is finite)"


def first_not_finite(model: nn.Module, batches: Sequence[Any]) -> str | None:
    """The first part of the model whose output is not finite on these batches, if any is."""
    found: list[str] = []

    def look(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not torch.isfinite(output).all():
                found.append(name)

        return hook

    hooks = [
        module.register_forward_hook(look(name))
        for name, module in model.named_modules()
        if not any(module.children())
    ]
    try:
        with torch.no_grad():
            for batch in batches:
                model.loss(batch)  # type: ignore[operator]
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def stuck(losses: Sequence[float], chance: float) -> str | None:
    """Whether a run has learned nothing: its loss stays where knowing nothing would leave it."""
    if len(losses) < 50:
        return None
    recent = sum(losses[-20:]) / 20
    if recent > 0.99 * chance:  # or worse than knowing nothing
        return (
            f"the loss stays at {recent:.3f}, no better than what knowing nothing gives "
            f"({chance:.3f}): try another learning rate, and look at the data"
        )
    return None
