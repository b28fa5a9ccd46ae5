"""Lines on stdout and stderr, with control characters escaped.

Text of models, data and files is untrusted: nothing else writes to a terminal.
"""

from __future__ import annotations

import json
import shutil
import sys

from clearformer.escape import escape_line, escape_text, json_line


def say(line: str = "", *, flush: bool = False) -> None:
    """Write one line of a report to stdout."""
    print(escape_line(line), flush=flush)


def tell(sentence: str) -> None:
    """Write one line to stderr: an error, a note, progress."""
    print(escape_line(sentence), file=sys.stderr, flush=True)


def tell_over(sentence: str) -> None:
    """Write a line to stderr that the next one replaces: progress in a terminal. An empty one ends
    it. Without escape codes, so that any terminal can show it."""
    width = max(shutil.get_terminal_size((80, 24)).columns - 1, 20)
    line = escape_line(sentence)[:width]
    print(f"\r{' ' * width}\r{line}", end="", file=sys.stderr, flush=True)


def tell_text(text: str) -> None:
    """Write several lines to stderr, such as a traceback."""
    print(escape_text(text.rstrip("\n")), file=sys.stderr, flush=True)


def write_json(value: object) -> None:
    """Write data to stdout as one line of JSON: exact, and harmless in a terminal."""
    line = json_line(value)
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # replacing characters would change the JSON
        line = json.dumps(value)
    print(line, flush=True)
