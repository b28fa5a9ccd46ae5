"""Signals that end a run: it saves at the next step."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Self


class Signals:
    """Collects SIGINT, SIGTERM and SIGHUP inside its context, in order of arrival."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before: dict[signal.Signals, Callable[..., Any] | int | None] = {}

    def __enter__(self) -> Self:
        self._before = {each: signal.signal(each, self._receive) for each in self._handled()}
        return self

    def __exit__(self, *problem: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _handled(self) -> list[signal.Signals]:
        handled = [signal.SIGINT, signal.SIGTERM]
        # Under `nohup` SIGHUP stays ignored.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            handled.append(signal.SIGHUP)
        return handled

    def _receive(self, which: int, frame: object) -> None:
        self.received.append(which)


class StopSignals(Signals):
    """The first signal ends a run at the next step; a second one ends the process."""

    def exit_code(self) -> int:
        """The exit code of the first signal, 128 + N; 0 without one."""
        return 128 + self.received[0] if self.received else 0

    def _receive(self, which: int, frame: object) -> None:
        if self.received:
            self._leave(which)
        super()._receive(which, frame)

    def _leave(self, which: int) -> None:
        os._exit(128 + which)


class StopOnInterrupt(StopSignals):
    """Ctrl-C alone, for a call from Python; a second one raises KeyboardInterrupt.

    Outside the main thread, where Python cannot handle signals, nothing is handled.
    """

    def _handled(self) -> list[signal.Signals]:
        main = threading.current_thread() is threading.main_thread()
        # A shell lets background jobs ignore Ctrl-C; they keep ignoring it.
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        return [signal.SIGINT] if main and not ignored else []

    def _leave(self, which: int) -> None:
        raise KeyboardInterrupt
