"""Loss scaling for float16, whose range is too small for gradients.

Below 6e-8 a float16 is zero, so the loss is multiplied by a scale before the backward pass and
the gradients are divided by it afterwards. If they overflow, the step is skipped and the scale
halved; after 2,000 good steps it is doubled (torch.amp.GradScaler). float32 and bfloat16 need none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

MAX_CONSECUTIVE_SKIPS = 20  # before a run fails


class Scaling:
    """No scaling; the base of `LossScaling`."""

    skipped: int = 0  # steps so far
    in_a_row: int = 0

    @property
    def scale(self) -> float:
        return 1.0

    def scale_loss(self, loss: Tensor) -> Tensor:
        """The loss for the backward pass."""
        return loss

    def unscale(self, optimizers: Sequence[Optimizer]) -> None:
        """Divide the gradients of these optimizers by the scale."""

    def overflowed(self) -> bool:
        """Whether the gradients overflowed; to be called once per step."""
        return False

    def numbers(self) -> dict[str, Any] | None:
        """The state for a checkpoint."""
        return None

    def load(self, numbers: Mapping[str, Any] | None) -> None:
        """Load the state that `numbers` returned."""


class LossScaling(Scaling):
    """torch.amp.GradScaler with a count of skipped steps."""

    def __init__(self, device: torch.device) -> None:
        self.scaler = torch.amp.GradScaler(device.type)
        self.scaler.scale(torch.zeros((), device=device))  # creates its tensors

    @property
    def scale(self) -> float:
        return self.scaler.get_scale()

    def scale_loss(self, loss: Tensor) -> Tensor:
        return self.scaler.scale(loss)

    def unscale(self, optimizers: Sequence[Optimizer]) -> None:
        for optimizer in optimizers:
            self.scaler.unscale_(optimizer)

    def overflowed(self) -> bool:
        before = self.scale
        self.scaler.update()
        # All optimizers step or none does: half an update points in another direction.
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
            return  # the run had another precision before
        current = self.scaler.state_dict()
        self.scaler.load_state_dict(
            {**current, "scale": numbers["scale"], "_growth_tracker": numbers["good_steps"]}
        )
        self.skipped, self.in_a_row = numbers["skipped"], numbers["in_a_row"]


def loss_scaling_for(precision: str, device: torch.device) -> Scaling:
    """The scaling that a precision needs."""
    return LossScaling(device) if precision == "float16" else Scaling()
