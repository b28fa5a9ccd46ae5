"""Renamed flags: the old names work for one more release, with a note.

The table is applied to the words of a command before they are parsed. Add a verb or a flag to
`RENAMED`; remove the entries of a release in the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

from clearformer.cli.output import tell

RENAMED: dict[str, dict[str, str]] = {  # by verb: old flag, new flag
    "generate": {
        "--length": "--max-tokens",
        "--least": "--min-tokens",
        "--batch": "--batch-size",
        "--typical": "--typical-p",
        "--repetition": "--repetition-penalty",
        "--frequency": "--frequency-penalty",
        "--past-context": "--context-overflow",
    },
    "translate": {"--length": "--max-tokens", "--batch": "--batch-size"},
    "fill": {"--top": "--top-k"},
}


def current_flags(words: Sequence[str]) -> list[str]:
    """Replace the old flags of a command by the new ones, with a note on stderr for each."""
    table = RENAMED.get(words[0], {}) if words else {}
    given = {_flag(word) for word in words}
    current, noted = [], set()
    for word in words:
        flag, (_, equals, value) = _flag(word), word.partition("=")
        if flag in table:
            new = table[flag]
            if new in given:
                raise ValueError(f"{flag} is the old name of {new}: give {new} alone")
            if flag not in noted:
                tell(f"note: {flag} is now {new}")
                noted.add(flag)
            word = f"{new}{equals}{value}"
        current.append(word)
    return current


def _flag(word: str) -> str:
    """The flag of `--flag` or `--flag=value`, spelled with hyphens as the parser allows both."""
    return word.partition("=")[0].replace("_", "-")
