"""Signals that end a run: it saves at the next step, and leaves with 128 + N."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


class Signals:
    """Collects SIGINT, SIGTERM and SIGHUP while it is entered, in the order in which they came."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before: dict[signal.Signals, Callable[..., Any] | int | None] = {}

    def __enter__(self) -> Signals:
        heeded = [signal.SIGINT, signal.SIGTERM]
        # `nohup` has a command ignore that its terminal is closed, and so it stays.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            heeded.append(signal.SIGHUP)
        self._before = {each: signal.signal(each, self._receive) for each in heeded}
        return self

    def __exit__(self, *problem: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _receive(self, which: int, frame: object) -> None:
        self.received.append(which)


class Stopping(Signals):
    """The first signal ends a run at the next step; a second one ends it now."""

    def asked(self) -> int:
        """The code to leave with at the next step; 0 as long as nobody asked."""
        return 128 + self.received[0] if self.received else 0

    def _receive(self, which: int, frame: object) -> None:
        if self.received:
            os._exit(128 + which)
        super()._receive(which, frame)
