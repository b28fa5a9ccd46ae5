"""Ctrl-C as a stop condition: the text generated so far is kept."""

from __future__ import annotations

import signal


class Interrupt:
    """While entered, the first Ctrl-C makes `requested()` true; a second one ends the command."""

    def __init__(self) -> None:
        self.received = False

    def __enter__(self) -> Interrupt:
        self.before = signal.getsignal(signal.SIGINT)
        # A shell makes background jobs ignore Ctrl-C; they keep ignoring it.
        if self.before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._receive)
        return self

    def __exit__(self, *problem: object) -> None:
        signal.signal(signal.SIGINT, self.before)

    def requested(self) -> bool:
        """Whether to stop; the stop condition of a generation."""
        return self.received

    def _receive(self, which: int, frame: object) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = True
