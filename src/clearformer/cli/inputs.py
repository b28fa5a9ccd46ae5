"""Input texts of a command: arguments, a file, or standard input."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from clearformer.cli.output import tell, tell_over
from clearformer.data.reading_progress import as_lines
from clearformer.table_options import EARLIER, LabelledFormat

if TYPE_CHECKING:
    from clearformer.data import Table

STDIN = "-"
PATIENCE = 2.0  # seconds without input on a pipe before a note says what is awaited


def rows_read(name: str, count: int, done: bool) -> None:
    """Show how many rows of a table have been read: in place in a terminal, else in a few lines."""
    if sys.stderr.isatty():
        tell_over("" if done else f"reading {name}: {count:,} rows so far")
    else:
        as_lines(lambda sentence: tell(f"clearformer: {sentence}"))(name, count, done)


def chosen(texts: Sequence[str], file: str | Path | None) -> str | None:
    """The file to read instead of `texts`, `-` for standard input; None: the texts themselves.

    Standard input is read if the only text is `-`, or if there are no texts and it is a pipe.
    """
    if texts and file is not None:
        raise ValueError("give either texts or --file, and not both")
    if STDIN in texts:
        if len(texts) > 1:
            raise ValueError("- means standard input, so give no other text with it")
        return STDIN
    if file is not None or texts:
        return None if file is None else os.fspath(file)
    if is_piped():
        return STDIN
    raise ValueError("there is no text: give texts, name a --file, or pipe texts in")


def given_table(
    texts: Sequence[str],
    file: str | Path | None,
    column: str,
    options: LabelledFormat = EARLIER,
) -> Table:
    """The texts of the arguments, of a file, or of standard input."""
    from clearformer import data

    source = chosen(texts, file)
    if source is None:
        return data.Table("the given texts", tuple(texts), None)
    with awaiting(source, "texts, one a line"):
        return data.read_texts(source, column, options)


def tell_cut(cut: int, total: int, length: int) -> None:
    """Note how many texts were truncated to the model's `length` tokens."""
    if cut:
        tell(
            f"note: texts longer than {length:,} tokens were cut to that length: {cut:,} of "
            f"{total:,}"
        )


def is_piped() -> bool:
    """Whether standard input is a pipe, a file or a socket, and not a terminal or /dev/null."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or not a file of the system
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def announce(source: str | Path | None, what: str) -> None:
    """Say what is awaited, if it is to be typed in a terminal."""
    if source is not None and os.fspath(source) == STDIN and sys.stdin.isatty():
        tell(f"clearformer: reading {what}, from the terminal: end with Ctrl-D")


@contextmanager
def awaiting(source: str | Path | None, what: str) -> Iterator[None]:
    """Say what is awaited on standard input: at once in a terminal, after a while on a pipe."""
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
