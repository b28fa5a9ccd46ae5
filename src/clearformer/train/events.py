"""What happens in a run, as it is told to whoever iterates over it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Step:
    """One optimizer step."""

    step: int
    loss: float
    lr: float
    gradient_norm: float
    tokens: int  # targets so far: what they are is told by the task's `counted`
    seconds: float  # of training, over all starts
    progress: float


@dataclass(frozen=True)
class Skipped:
    """A step that was left out: its gradient overflowed float16."""

    step: int
    scale: float  # of the loss, from now on
    skipped: int  # such steps so far


@dataclass(frozen=True)
class Evaluation:
    """The figures of a step on the validation data; best = better than all before."""

    step: int
    figures: dict[str, float]
    best: bool
    sample: str | None = None  # what the model says, if it was asked to
    error: float | None = None  # the standard error of the figure that decides


@dataclass(frozen=True)
class Saved:
    """A checkpoint is on disk."""

    step: int
    folder: Path


@dataclass(frozen=True)
class Ended:
    """The last event: why it ended."""

    step: int
    reason: str  # finished, stopped
    exit: int = 0  # the code to leave with


Event = Step | Skipped | Evaluation | Saved | Ended
