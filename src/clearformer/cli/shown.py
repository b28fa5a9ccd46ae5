"""How `clearformer generate` shows what was written: lines, colours, a table, and how fast."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from clearformer.generate.spell import Token

# Some readers take these for the end of a line, too.
LINE_ENDS = {place: f"\\u{place:04x}" for place in (0x85, 0x2028, 0x2029)}
COLOURS = ((1, 46), (2, 190), (4, 220), (8, 208), (float("inf"), 196))  # bits below, colour


class Shown(Protocol):
    """A text that is done."""

    @property
    def prompt(self) -> str | Sequence[int]: ...

    @property
    def text(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def tokens(self) -> Sequence[object]: ...


def as_line(text: Shown) -> str:
    return f"{text.prompt}{text.text}"


def as_json(text: Shown, sample: int, more: Mapping[str, object]) -> str:
    """A text as a line of JSON."""
    row: dict[str, object] = {"prompt": text.prompt, "sample": sample}
    row |= {"text": text.text, "reason": text.reason, "tokens": len(text.tokens), **more}
    return json.dumps(row, ensure_ascii=False).translate(LINE_ENDS)


def numbers(tokens: Sequence[Token]) -> dict[str, object]:
    """All that is known of each token, as columns."""
    return {
        "ids": [token.id for token in tokens],
        "probabilities": [token.probability for token in tokens],
        "bits": [round(token.bits, 4) for token in tokens],
        "uniforms": [token.uniform for token in tokens],
    }


def shower() -> Callable[[Token], str]:
    """How a token is shown with its probability: in colour, or as a line of a table."""
    return coloured if sys.stdout.isatty() else tabled


def coloured(token: Token) -> str:
    """From green (expected) to red (a surprise)."""
    colour = next(colour for bits, colour in COLOURS if token.bits < bits)
    return f"\x1b[38;5;{colour}m{token.text}\x1b[0m"


def tabled(token: Token) -> str:
    shown = json.dumps(token.text, ensure_ascii=False)
    return f"{token.probability:8.4f} {token.bits:7.2f} bits {token.uniform:8.4f}  {shown}\n"


class Clock:
    """Tokens a second, from the first one on: before it comes the reading of the prompt."""

    def __init__(self) -> None:
        self.tokens = 0
        self.began = time.perf_counter()

    def count(self, tokens: int = 1) -> None:
        self.tokens += tokens

    def tell(self) -> None:
        seconds = max(time.perf_counter() - self.began, 1e-9)
        print(
            f"{self.tokens:,} tokens in {seconds:.1f} s, {self.tokens / seconds:,.0f} tokens/s",
            file=sys.stderr,
        )


def note(*sentences: str | None) -> None:
    """What the user should know, beside the output and not in it."""
    for sentence in sentences:
        if sentence is not None:
            print(f"note: {sentence}", file=sys.stderr)
