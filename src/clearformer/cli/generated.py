"""Output of `clearformer generate`: lines, JSON, coloured tokens, throughput."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from clearformer.cli.output import say, tell, write
from clearformer.escape import json_line

if TYPE_CHECKING:
    from clearformer.generate.detokenize import Token

COLOURS = ((1, 46), (2, 190), (4, 220), (8, 208), (float("inf"), 196))  # bits below, colour


class Generated(Protocol):
    """A finished text of sampling or of a beam search."""

    @property
    def prompt(self) -> str | Sequence[int]: ...

    @property
    def text(self) -> str: ...

    @property
    def finish_reason(self) -> str: ...

    @property
    def tokens(self) -> Sequence[object]: ...


def as_line(text: Generated) -> str:
    return f"{text.prompt}{text.text}\n"


def as_json(text: Generated, sample: int, more: Mapping[str, object]) -> dict[str, object]:
    """A text as a JSON object."""
    row: dict[str, object] = {"prompt": text.prompt, "sample": sample}
    row |= {"text": text.text, "reason": text.finish_reason, "tokens": len(text.tokens), **more}
    return row


def token_printer() -> Callable[[Token], None]:
    """A function that shows a token with its probability: in colour, or as a line of a table."""
    return coloured if sys.stdout.isatty() else tabled


def coloured(token: Token) -> None:
    """Write a token in a colour from green (expected) to red (a surprise)."""
    write(token.text, colour=next(colour for bits, colour in COLOURS if token.bits < bits))


def tabled(token: Token) -> None:
    numbers = f"{token.probability:8.4f} {token.bits:7.2f} bits {token.uniform:8.4f}"
    say(f"{numbers}  {json_line(token.text)}", flush=True)


class Throughput:
    """Counts tokens and reports tokens per second."""

    def __init__(self) -> None:
        self.tokens = 0
        self.began = time.perf_counter()

    def count(self, tokens: int = 1) -> None:
        self.tokens += tokens

    def tell(self) -> None:
        seconds = max(time.perf_counter() - self.began, 1e-9)
        tell(f"{self.tokens:,} tokens in {seconds:.1f} s, {self.tokens / seconds:,.0f} tokens/s")


def note(*sentences: str | None) -> None:
    """Write notes to stderr, beside the output."""
    for sentence in sentences:
        if sentence is not None:
            tell(f"note: {sentence}")
