"""Standard streams whose errors do not end a command."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from clearformer.cli.output import escape_reports


def settle_streams() -> None:
    """Replace closed streams, and escape letters that a stream cannot encode."""
    escape_reports()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
        elif mode == "w" and isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def optional_output() -> Iterator[None]:
    """Context in which output that cannot be written is dropped.

    For work that must survive its terminal: a closed window (EIO), a closed pipe (EPIPE), or a
    full disk under a log.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _optional(sys.stdout), _optional(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def _optional(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        descriptor = stream.fileno()
    except OSError:
        return stream  # in memory, as in tests
    with contextlib.suppress(OSError):
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Optional(descriptor, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )


class _Optional(io.FileIO):
    """A file that drops what it cannot write and everything after it."""

    def write(self, data: Any) -> int:
        try:
            written = super().write(data)
        except OSError:
            silence(self.fileno())
            written = None
        # None comes from a terminal that another program has made non-blocking, and that is full.
        return len(data) if written is None else written


def silence(descriptor: int) -> None:
    """Redirect a descriptor to the null device."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
