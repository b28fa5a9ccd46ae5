"""A command inside this process: for mistakes, which end before anything heavy begins."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
import traceback
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How a command left, and what it said."""

    code: int
    out: str
    err: str

    @property
    def clean(self) -> bool:
        """One line for a mistake, and never a traceback."""
        lines = [line for line in self.err.splitlines() if not line.startswith(NOTES)]
        return "Traceback" not in self.err and (self.code != 2 or len(lines) == 1)


NOTES = ("clearformer: note:", "clearformer: passed over")


def command(words: list[str]) -> None:
    """What `python -m clearformer WORDS` does; this room is below the command line and does not
    import it."""
    before = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["clearformer", *words], io.StringIO()  # what is piped in is not for it
    try:
        runpy.run_module("clearformer", run_name="__main__")
    finally:
        sys.argv, sys.stdin = before


def run(words: list[str]) -> Outcome:
    """`clearformer WORDS` in this process; an exception is its traceback and code 1."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            command(words)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0
        except BaseException:  # a panic of a library written in Rust is no Exception
            err.write(traceback.format_exc())
            code = 1
    return Outcome(code, out.getvalue(), err.getvalue())
