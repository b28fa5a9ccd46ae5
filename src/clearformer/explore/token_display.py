"""Tokens as they are shown: number, id, text, and a form in which everything is visible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from clearformer.explore.subject import Subject
from clearformer.text import BytePairs, Bytes, Tokenizer

SIGNS = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"}


def tokens(subject: Subject, ids: Sequence[int], first: int = 0) -> list[dict[str, Any]]:
    """A row for each token; those before place 0 (of a memory) have negative numbers."""
    texts, displays = _texts(subject, ids), _displays(subject, ids)
    specials = set(subject.marks)
    specials |= set(subject.tokenizer.specials.values()) if subject.tokenizer else set()
    special = [each in specials for each in ids]
    columns = (ids, texts, displays, special, _joined(subject, texts, special))
    names = ("id", "text", "display", "special", "joined")
    return [
        {"i": i, **dict(zip(names, row, strict=True))}
        for i, row in enumerate(zip(*columns, strict=True), start=first)
    ]


def words(subject: Subject, ids: Iterable[int]) -> list[dict[str, Any]]:
    """The same for tokens that stand nowhere, such as candidates."""
    listed = list(ids)
    return [
        {"id": id, "text": text, "display": display}
        for id, text, display in zip(
            listed, _texts(subject, listed), _displays(subject, listed), strict=True
        )
    ]


def _joined(subject: Subject, texts: Sequence[str], special: Sequence[bool]) -> list[bool]:
    """Of each token, whether it goes on with the word of the one before."""
    kind = None if subject.tokenizer is None else subject.tokenizer.kind
    if kind == "wordpiece":
        return [text.startswith("##") for text in texts]
    if kind in (None, "words"):
        return [False] * len(texts)
    return [
        n > 0
        and not (special[n] or special[n - 1])
        and texts[n - 1][-1:].isalnum()
        and texts[n][:1].isalnum()
        for n in range(len(texts))
    ]


def visible(text: str) -> str:
    """A text in which spaces and ends of lines are seen, and what cannot be shown is spelled."""
    return "".join(map(_sign, text))


def _texts(subject: Subject, ids: Sequence[int]) -> list[str]:
    tokenizer = subject.tokenizer
    if isinstance(tokenizer, Bytes):
        marks = subject.marks
        return [marks.get(each) or tokenizer.decode([each]) for each in ids]
    return subject.pieces(ids)


def _displays(subject: Subject, ids: Sequence[int]) -> list[str]:
    tokenizer = subject.tokenizer
    spelled = [None if tokenizer is None else raw(tokenizer, each) for each in ids]
    return [
        visible(text) if data is None else visible(data.decode("utf-8", "surrogateescape"))
        for data, text in zip(spelled, _texts(subject, ids), strict=True)
    ]


def raw(tokenizer: Tokenizer, token: int) -> bytes | None:
    """The bytes of a token that may be part of a character; none: it is whole text."""
    if token >= tokenizer.size:
        return None  # a mark, which is no text
    if isinstance(tokenizer, Bytes):
        return bytes([token])
    if isinstance(tokenizer, BytePairs):
        table = _byte_of_sign()
        name = tokenizer.spec.vocabulary[token]
        if token not in tokenizer.specials.values() and all(sign in table for sign in name):
            return bytes(table[sign] for sign in name)
    return None


@cache
def _byte_of_sign() -> dict[str, int]:
    """How byte-level BPE writes bytes: printable ones as themselves, the others from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}


def _sign(character: str) -> str:
    if character in SIGNS:
        return SIGNS[character]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is part of a character
        return f"\\x{code - 0xDC00:02X}"
    # A control sign could not be seen; a separator of lines or a mark of direction would act.
    if not character.isprintable():
        return f"\\x{code:02X}" if code < 256 else f"\\u{{{code:X}}}"
    return character
