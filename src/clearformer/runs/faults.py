"""Fault injection by `CLEARFORMER_FAULT`, to show that a run recovers.

    crash:after_model@20   SIGKILL at that point of the save of step 20
    enospc@20              the disk is full while step 20 is saved
    nan@20                 the loss of step 20 is NaN

The command line reads the variable and passes a value. If the step is not saved, the fault happens
at the next save; the default is `@1`.
"""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clearformer.did_you_mean import nearest

if TYPE_CHECKING:
    from clearformer.training.step import Loss

# In the order of a save: see checkpoint.py.
POINTS = (
    "before_write",
    "after_model",
    "after_optimizer",
    "after_state",
    "before_manifest",
    "before_rename",
    "during_swap",
    "after_rename",
    "during_prune",
)
KINDS = ("nan", "enospc", *(f"crash:{point}" for point in POINTS))
VARIABLE = "CLEARFORMER_FAULT"


@dataclass(frozen=True)
class Faults:
    """At most one fault, and its step."""

    kind: str | None = None
    step: int = 1

    def reached(self, step: int) -> Callable[[str], None]:
        """A function to call at each point of the save of `step`."""

        def at(point: str) -> None:
            if step < self.step:
                return
            if self.kind == f"crash:{point}":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.kind == "enospc" and point == "after_model":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return at

    def spoil(self, step: int, loss: Loss) -> Loss:
        """The loss of `step`, or NaN."""
        if self.kind != "nan" or step != self.step:
            return loss

        def spoiled(batch: Any) -> Any:
            sums, counts = loss(batch)
            return sums * float("nan"), counts

        return spoiled


def parse(text: str | None) -> Faults:
    """`CLEARFORMER_FAULT` as a value; absent or empty is none."""
    if not text:
        return Faults()
    kind, at, step = text.partition("@")
    if kind not in KINDS:
        raise ValueError(f"{VARIABLE} is {text!r}: {nearest(kind, KINDS)}")
    if at and not re.fullmatch(r"[1-9]\d{0,15}", step):
        raise ValueError(f"{VARIABLE} is {text!r}, but after @ there must be a step from 1 on")
    return Faults(kind, int(step) if at else 1)
