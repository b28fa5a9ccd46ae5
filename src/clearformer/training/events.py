"""Events of a run: steps, evaluations, checkpoints and its end."""

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
    tokens: int  # targets so far; the task's `counted` says what they are
    seconds: float  # of training, over all starts
    progress: float


@dataclass(frozen=True)
class Skipped:
    """A step without an update, since its gradient overflowed float16."""

    step: int
    scale: float  # of the loss, from now on
    skipped: int  # such steps so far


@dataclass(frozen=True)
class Evaluation:
    """Metrics on the validation data; best: better than all before."""

    step: int
    figures: dict[str, float]
    best: bool
    sample: str | None = None  # text from the model
    error: float | None = None  # standard error of the deciding metric


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written."""

    step: int
    folder: Path


@dataclass(frozen=True)
class Ended:
    """The last event of a run."""

    step: int
    reason: str  # finished or stopped
    exit: int = 0  # exit code


Event = Step | Skipped | Evaluation | Saved | Ended
