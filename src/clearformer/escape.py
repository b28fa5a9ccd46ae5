"""Text from outside, made safe to show: control characters become visible escapes.

Labels, generated text, file names and what a file says of itself may hold anything: sequences
that clear a terminal or fill the clipboard, line breaks that forge a line, marks that turn the
direction of writing round. Escaping works on single characters, so a sequence that arrives in
pieces is caught as well.
"""

import json
import unicodedata
from functools import lru_cache

# Cc: C0 and C1 controls, DEL. Cf: bidirectional controls and other invisible marks. Cs: half of
# a surrogate pair. Zl, Zp: the separators that some readers take for the end of a line.
CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
JOINERS = "\u200c\u200d"  # Cf as well, but Persian, Indic scripts and emoji are written with them


def escape_line(text: str) -> str:
    """The text as a part of one line: line breaks and tabs are shown as escapes, too."""
    if text.isprintable():  # the usual case, without a look at each character
        return text
    return "".join(_visible(each) if is_unsafe(each) else each for each in text)


def escape_text(text: str) -> str:
    """The text with its own lines and tabs."""
    return "\n".join(
        "\t".join(escape_line(part) for part in line.split("\t")) for line in text.split("\n")
    )


def json_line(value: object) -> str:
    """The value as one line of JSON that is safe to show, and that reads back exactly."""
    written = json.dumps(value, ensure_ascii=False)
    if written.isprintable():
        return written
    # Such characters stand in strings alone, where JSON has an escape for each of them.
    return "".join(json.dumps(each)[1:-1] if is_unsafe(each) else each for each in written)


@lru_cache(maxsize=4096)
def is_unsafe(character: str) -> bool:
    """Whether a terminal might act on this character instead of showing it."""
    return unicodedata.category(character) in CATEGORIES and character not in JOINERS


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
