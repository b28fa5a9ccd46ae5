"""Output to stdout and stderr, with control characters escaped (tables: tables.py).

Reports and messages are always escaped. Text of a model is escaped in a terminal only, as `ls`
does with names: in a pipe or a file it comes out exactly as it is.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
import traceback
import warnings
from dataclasses import fields, is_dataclass
from itertools import chain
from types import TracebackType

from clearformer.console import say as say
from clearformer.console import tell as tell
from clearformer.console import tell_over as tell_over
from clearformer.console import tell_text as tell_text
from clearformer.console import write_json as write_json
from clearformer.escape import escape_line, escape_text

COLOUR_CODE = re.compile(r"(\x1b\[[0-9;]*m)")


def write(text: str, *, colour: int | None = None) -> None:
    """Write text of a model to stdout; in a terminal in one of 256 colours."""
    if sys.stdout.isatty():
        text = escape_text(text)
        plain = colour is None or os.environ.get("NO_COLOR")
        text = text if plain else f"\x1b[38;5;{colour}m{text}\x1b[0m"
    sys.stdout.write(text)
    sys.stdout.flush()


def write_line(text: str) -> None:
    """Write text of a model to stdout as one line of many."""
    if sys.stdout.isatty():
        text = escape_line(text)
    print(text)


def with_flags(sentence: str, command: object) -> str:
    """A message of the library, with its parameters in backticks as the flags of a command."""
    if not is_dataclass(command):
        return sentence
    flags = {each.name: f"--{each.name.replace('_', '-')}" for each in fields(command)}
    return re.sub("`([a-z_]+)`", lambda found: flags.get(found[1], found[0]), sentence)


class Help(io.TextIOWrapper):
    """Captures what the parser prints to stdout, because help shows values of untrusted runs."""

    def __init__(self) -> None:
        self.real = sys.stdout
        self.bytes = io.BytesIO()
        encoding, errors = self.real.encoding or "utf-8", self.real.errors
        super().__init__(self.bytes, encoding=encoding, errors=errors, newline="")

    def isatty(self) -> bool:
        return self.real.isatty()

    def release(self) -> None:
        """Print it, escaped except for the parser's colours and line breaks."""
        self.flush()
        text = self.bytes.getvalue().decode(self.encoding, self.errors or "strict")
        text = "\n".join(chain.from_iterable(map(_within_width, text.split("\n"))))
        parts = COLOUR_CODE.split(text)  # every second one is a colour
        shown = [each if place % 2 else escape_text(each) for place, each in enumerate(parts)]
        self.real.write("".join(shown))
        self.real.flush()


def text_width() -> int:
    """The width of the terminal, or COLUMNS; 80 in a pipe."""
    return max(40, min(shutil.get_terminal_size((80, 24)).columns, 110))


def say_wrapped(text: str, first: str = "", later: str = "") -> None:
    """Write a text to stdout in lines of the terminal's width, after these indents."""
    lines = textwrap.wrap(
        text, text_width(), initial_indent=first, subsequent_indent=later, break_long_words=False
    )
    for line in lines or [first]:
        say(line)


def _within_width(line: str) -> list[str]:
    """A line of the parser's help, which wraps its tables but not the sentences above them."""
    is_table = line[:1] in ("│", "╭", "╰")
    if is_table or COLOUR_CODE.search(line) or len(line) <= text_width():
        return [line]
    return textwrap.wrap(line, text_width(), subsequent_indent=" " * 4, break_long_words=False)


def escape_reports() -> None:
    """Escape what the interpreter prints itself: warnings and tracebacks."""
    sys.excepthook = _defect
    warnings.showwarning = _warn


def _defect(kind: type[BaseException], problem: BaseException, place: TracebackType | None) -> None:
    tell_text("".join(traceback.format_exception(kind, problem, place)))


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    tell_text(warnings.formatwarning(message, category, filename, lineno, line))
