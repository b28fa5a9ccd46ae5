"""Escapes control characters in untrusted text, so that it is safe to print.

Labels, generated text, file names and metadata may contain anything: sequences that clear a
terminal or write to the clipboard, line breaks that forge a line, marks that reverse the writing
direction. Escaping works on single characters, so a sequence that arrives in pieces is escaped too.
"""

import json
import unicodedata
from functools import lru_cache

# Cc: C0 and C1 controls, DEL. Cf: bidirectional controls and other invisible marks. Cs: lone
# surrogates. Zl, Zp: separators that some readers treat as line breaks.
CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
JOINERS = "\u200c\u200d"  # also Cf, but needed by Persian, Indic scripts and emoji


def escape_line(text: str) -> str:
    """The text on one line: line breaks and tabs are escaped, too."""
    if text.isprintable():  # fast path
        return text
    return "".join(_visible(each) if is_unsafe(each) else each for each in text)


def escape_text(text: str) -> str:
    """The text with its line breaks and tabs."""
    return "\n".join(
        "\t".join(escape_line(part) for part in line.split("\t")) for line in text.split("\n")
    )


def json_line(value: object) -> str:
    """The value as one line of JSON that is safe to print and parses to the same value."""
    written = json.dumps(value, ensure_ascii=False)
    if written.isprintable():
        return written
    # Such characters occur only in strings, where JSON has an escape for each of them.
    return "".join(json.dumps(each)[1:-1] if is_unsafe(each) else each for each in written)


@lru_cache(maxsize=4096)
def is_unsafe(character: str) -> bool:
    """Whether a terminal might interpret this character instead of printing it."""
    return unicodedata.category(character) in CATEGORIES and character not in JOINERS


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
