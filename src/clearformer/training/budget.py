"""Budget of a run in steps, epochs or minutes: its progress and learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clearformer.config import TrainConfig
from clearformer.training import schedule


@dataclass(frozen=True)
class Budget:
    """How long a run trains; `steps_per_epoch` is that of its data."""

    config: TrainConfig
    steps_per_epoch: int

    @property
    def total_steps(self) -> int:
        """The number of steps; a budget in minutes has none."""
        assert self.config.minutes is None
        if self.config.steps is not None:
            return self.config.steps
        assert self.config.epochs is not None
        return max(1, round(self.config.epochs * self.steps_per_epoch))

    def progress(self, step: int, seconds: float) -> float:
        """The share of the budget that is spent after `step` steps in `seconds` of training."""
        if self.config.minutes is not None:
            return seconds / (60 * self.config.minutes)
        return step / self.total_steps

    def lr_factor(
        self, step: int, seconds: float, warmed: Mapping[str, Any] | None
    ) -> tuple[float, dict[str, Any] | None]:
        """The factor on the base learning rate at `step`, and where the warm-up ended.

        `warmed` is {"step", "seconds"} at the end of the warm-up, None before. It is saved with
        the run, so that a budget that is changed later does not move it.
        """
        train, progress = self.config, self.progress(step, seconds)
        known = None if warmed is None else dict(warmed)
        if train.decay_start == "from_start":
            return schedule.from_start(train.schedule, step, progress), known
        if known is not None:
            share = self.progress(known["step"], known["seconds"])
            warmup = schedule.Warmup(1.0, known["step"], share)
        elif train.minutes is not None:
            warmup = schedule.by_clock(train.schedule, step, progress)
        else:
            warmup = schedule.by_steps(train.schedule, step, self.total_steps)
        if known is None and warmup.factor >= 1:
            known = {"step": warmup.steps, "seconds": seconds if warmup.steps else 0.0}
        return schedule.factor(train.schedule, step, progress, warmup), known
