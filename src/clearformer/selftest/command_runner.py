"""Runs commands inside this process: for errors, which end before anything expensive starts."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import traceback
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def clean(self) -> bool:
        """Whether there is one line for a usage error, and never a traceback."""
        lines = [line for line in self.err.splitlines() if not line.startswith(NOTES)]
        return "Traceback" not in self.err and (self.code != 2 or len(lines) == 1)


NOTES = ("clearformer: note:", "clearformer: passed over")


def command(arguments: list[str]) -> None:
    """Run `clearformer ARGUMENTS`, with nothing on standard input."""
    before = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["clearformer", *arguments], io.StringIO()
    try:
        # The command line is a ring of its own, above this one.
        importlib.import_module("clearformer.cli.main").main()
    finally:
        sys.argv, sys.stdin = before


def run(arguments: list[str]) -> Outcome:
    """Run a command; an exception gives its traceback and exit code 1."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            command(arguments)
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 0
        except BaseException:  # a panic of a Rust library is not an Exception
            err.write(traceback.format_exc())
            code = 1
    return Outcome(code, out.getvalue(), err.getvalue())
