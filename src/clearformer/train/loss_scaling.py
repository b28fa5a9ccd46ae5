"""Loss scaling: float16 loses small gradients and overflows on large ones.

Below 6e-8 a float16 is zero, so the loss is multiplied by a large number before the backward
pass and the gradients divided by it after. Where that overflows, the step is left out and the
number halved; after 2,000 good steps it is doubled (torch's own rule). float32 and bfloat16 have
range enough and scale nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

MOST_IN_A_ROW = 20  # steps left out, before a run is given up: no scale will do


class Scaling:
    """No scaling, and the base of the one there is."""

    scale: float = 1.0
    skipped: int = 0  # steps left out so far
    in_a_row: int = 0

    def enlarge(self, loss: Tensor) -> Tensor:
        """What the backward pass begins with."""
        return loss

    def restore(self, rules: Sequence[Optimizer]) -> None:
        """Give the gradients of these rules their own size back."""

    def overflowed(self) -> bool:
        """Whether the gradients just restored are of no use; asked once a step."""
        return False

    def numbers(self) -> dict[str, Any] | None:
        """What a checkpoint keeps."""
        return None

    def load(self, numbers: Mapping[str, Any] | None) -> None:
        """Put back what `numbers` gave."""


class LossScaling(Scaling):
    """torch's GradScaler, its steps that were left out counted."""

    def __init__(self, device: torch.device) -> None:
        self.scaler = torch.amp.GradScaler(device.type)
        self.scaler.scale(torch.zeros((), device=device))  # it makes its numbers at the first use

    @property
    def scale(self) -> float:  # type: ignore[override]
        return self.scaler.get_scale()

    def enlarge(self, loss: Tensor) -> Tensor:
        return self.scaler.scale(loss)

    def restore(self, rules: Sequence[Optimizer]) -> None:
        for rule in rules:
            self.scaler.unscale_(rule)

    def overflowed(self) -> bool:
        before = self.scale
        self.scaler.update()
        # All rules move or none does: half a step is a step in another direction.
        overflowed = self.scale < before
        self.skipped += overflowed
        self.in_a_row = self.in_a_row + 1 if overflowed else 0
        return overflowed

    def numbers(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "good_steps": self.scaler.state_dict()["_growth_tracker"],
            "skipped": self.skipped,
            "in_a_row": self.in_a_row,
        }

    def load(self, numbers: Mapping[str, Any] | None) -> None:
        if numbers is None:
            return  # the run was in another precision until now
        own = self.scaler.state_dict()
        self.scaler.load_state_dict(
            {**own, "scale": numbers["scale"], "_growth_tracker": numbers["good_steps"]}
        )
        self.skipped, self.in_a_row = numbers["skipped"], numbers["in_a_row"]


def suited(precision: str, device: torch.device) -> Scaling:
    """The scaling that a precision needs."""
    return LossScaling(device) if precision == "float16" else Scaling()
