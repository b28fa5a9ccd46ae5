"""Texts that a verb is given: as words, in a file, or through a pipe."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from clearformer.cli.output import tell

if TYPE_CHECKING:
    from clearformer.data import Table

STDIN = "-"
PATIENCE = 2.0  # seconds that a pipe may be silent before it is said who waits for whom


def chosen(texts: Sequence[str], file: str | Path | None) -> str | None:
    """The file to read instead of `texts`, `-` for standard input; None: the texts themselves.

    A `-` in the place of the texts is standard input, and so is a pipe where there are none.
    Standard input is never touched where texts or a file are given.
    """
    if texts and file is not None:
        raise ValueError("give either texts or --file, and not both")
    if STDIN in texts:
        if len(texts) > 1:
            raise ValueError("- stands for standard input, so no other text can stand beside it")
        return STDIN
    if file is not None or texts:
        return None if file is None else os.fspath(file)
    if is_piped():
        return STDIN
    raise ValueError("there is no text: give texts, name a --file, or pipe texts in")


def given_table(texts: Sequence[str], file: str | Path | None, column: str) -> Table:
    """The given texts, those of a file, or the lines of standard input."""
    from clearformer import data

    source = chosen(texts, file)
    if source is None:
        return data.Table("the given texts", tuple(texts), None)
    with awaiting(source, "texts, one a line"):
        return data.read_texts(source, column)


def tell_cut(cut: int, total: int, length: int) -> None:
    """Say how many texts lost a part, because a model reads `length` tokens at a time."""
    if cut:
        tell(
            f"note: texts longer than {length:,} tokens were cut to that length: {cut:,} of "
            f"{total:,}"
        )


def is_piped() -> bool:
    """Whether something is meant to come through standard input: a pipe, a file or a socket.

    A terminal is not read unasked, and /dev/null is what a program without input is given.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or none of the system's
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def announce(source: str | Path | None, what: str) -> None:
    """Say what is awaited, if somebody has to type it."""
    if source is not None and os.fspath(source) == STDIN and sys.stdin.isatty():
        tell(f"clearformer: reading {what}, from the terminal: end with Ctrl-D")


@contextmanager
def awaiting(source: str | Path | None, what: str) -> Iterator[None]:
    """Say what is awaited while standard input is read: at once in a terminal, and of a pipe
    that stays silent."""
    announce(source, what)
    if source is None or os.fspath(source) != STDIN or sys.stdin.isatty():
        yield
        return
    sentence = f"clearformer: waiting for {what}, on standard input (</dev/null: nothing)"
    timer = threading.Timer(PATIENCE, tell, (sentence,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
