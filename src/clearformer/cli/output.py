"""The one place that writes to stdout and stderr (rich's part of it: show.py).

Lines of a report and messages are escaped wherever they go. Text that a model wrote is escaped
in a terminal alone, as `ls` does with names: in a pipe or a file it comes out exactly as it is.
"""

from __future__ import annotations

import io
import json
import re
import sys
import traceback
import warnings
from types import TracebackType

from clearformer.escape import escape_line, escape_text, json_line

COLOUR_CODE = re.compile(r"(\x1b\[[0-9;]*m)")


def say(line: str = "", *, flush: bool = False) -> None:
    """One line of a report, to stdout."""
    print(escape_line(line), flush=flush)


def tell(sentence: str) -> None:
    """One line beside the results, to stderr: an error, a note, what is going on."""
    print(escape_line(sentence), file=sys.stderr, flush=True)


def tell_text(text: str) -> None:
    """Several lines to stderr, such as a traceback."""
    print(escape_text(text.rstrip("\n")), file=sys.stderr, flush=True)


def write(text: str, *, colour: int | None = None) -> None:
    """Text that a model wrote, or was given, to stdout; in a terminal in one of 256 colours."""
    if sys.stdout.isatty():
        text = escape_text(text)
        text = text if colour is None else f"\x1b[38;5;{colour}m{text}\x1b[0m"
    sys.stdout.write(text)
    sys.stdout.flush()


def write_line(text: str) -> None:
    """A text of a model that is one line of many, to stdout."""
    if sys.stdout.isatty():
        text = escape_line(text)
    print(text)


def write_json(value: object) -> None:
    """Data as one line of JSON, to stdout: exact wherever it goes, and harmless in a terminal."""
    line = json_line(value)
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a stream of few letters would write what is no JSON
        line = json.dumps(value)
    print(line, flush=True)


class Help(io.StringIO):
    """Takes what the parser prints to stdout; its help shows settings of the run that is named."""

    def __init__(self) -> None:
        super().__init__()
        self.real = sys.stdout

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.real.encoding

    def isatty(self) -> bool:
        return self.real.isatty()

    def release(self) -> None:
        """Print it: the parser's colours and lines stay."""
        parts = COLOUR_CODE.split(self.getvalue())  # every second one is a colour
        shown = [each if place % 2 else escape_text(each) for place, each in enumerate(parts)]
        self.real.write("".join(shown))
        self.real.flush()


def escape_reports() -> None:
    """Have the interpreter escape what it prints itself: warnings, and a defect's traceback."""
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
