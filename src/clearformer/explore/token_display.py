"""Tokens as the page displays them: position, id, text, and a form with visible whitespace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from clearformer.explore.traced_model import TracedModel
from clearformer.text import BytePairs, Bytes, Tokenizer
from clearformer.text.specs import byte_characters

SYMBOLS = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"}
# The byte of each character in a byte-level BPE vocabulary.
BYTE_OF = {character: byte for byte, character in enumerate(byte_characters())}


def tokens(model: TracedModel, ids: Sequence[int], first: int = 0) -> list[dict[str, Any]]:
    """The tokens of a sequence; `first` is the position of the first one in the text."""
    special_ids = set(model.added_tokens)
    special_ids |= set(model.tokenizer.specials.values()) if model.tokenizer else set()
    special = [each in special_ids for each in ids]
    items = vocabulary_items(model, ids)
    joined = _continues_word(model, [item["text"] for item in items], special)
    return [
        {
            "i": i,
            **item,
            "special": special[n],
            "joined": joined[n],
            "bytes": None
            if special[n]
            else _hexadecimal(model.tokenizer, item["id"], item["text"]),
        }
        for n, (i, item) in enumerate(enumerate(items, start=first))
    ]


def _hexadecimal(tokenizer: Tokenizer | None, id: int, text: str) -> str:
    """The bytes of a token, which may be a part of a character: `F0 9F`."""
    data = None if tokenizer is None else token_bytes(tokenizer, id)
    data = text.encode("utf-8", "surrogatepass") if data is None else data
    return data.hex(" ").upper()


def characters(model: TracedModel, ids: Sequence[int]) -> int:
    """How many characters of a text end in a token after the first one.

    A token may be a part of a character, so tokens cannot be counted instead.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        return 0
    special = {*model.added_tokens, *tokenizer.specials.values()}
    first, *_ = ids
    text = tokenizer.decode([id for id in ids if id not in special])
    begun = "" if first in special else tokenizer.decode([first]).rstrip("\ufffd")
    return len(text) - len(begun)


def vocabulary_items(model: TracedModel, ids: Iterable[int]) -> list[dict[str, Any]]:
    """Tokens without a position, such as candidates."""
    listed = list(ids)
    return [
        {"id": id, "text": text, "display": _display(model.tokenizer, id, text)}
        for id, text in zip(listed, _texts(model, listed), strict=True)
    ]


def _continues_word(
    model: TracedModel, texts: Sequence[str], special: Sequence[bool]
) -> list[bool]:
    """For each token, whether it continues the word of the one before."""
    kind = None if model.tokenizer is None else model.tokenizer.kind
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
    """A text with visible whitespace and escaped control characters."""
    return "".join(map(_symbol, text))


def _texts(model: TracedModel, ids: Sequence[int]) -> list[str]:
    tokenizer = model.tokenizer
    if isinstance(tokenizer, Bytes):
        added = model.added_tokens
        return [added.get(each) or tokenizer.decode([each]) for each in ids]
    return model.pieces(ids)


def _display(tokenizer: Tokenizer | None, id: int, text: str) -> str:
    data = None if tokenizer is None else token_bytes(tokenizer, id)
    return visible(text if data is None else data.decode("utf-8", "surrogateescape"))


def token_bytes(tokenizer: Tokenizer, token: int) -> bytes | None:
    """The bytes of a token that may be part of a character; None if it is whole text."""
    if token >= tokenizer.size:
        return None  # a start or end token, which has no text
    if isinstance(tokenizer, Bytes):
        return bytes([token])
    if isinstance(tokenizer, BytePairs):
        name = tokenizer.spec.vocabulary[token]
        if token not in tokenizer.specials.values() and all(each in BYTE_OF for each in name):
            return bytes(BYTE_OF[each] for each in name)
    return None


def _symbol(character: str) -> str:
    if character in SYMBOLS:
        return SYMBOLS[character]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is part of a character
        return f"\\x{code - 0xDC00:02X}"
    # Control characters are invisible; line separators and direction marks would take effect.
    if not character.isprintable():
        return f"\\x{code:02X}" if code < 256 else f"\\u{{{code:X}}}"
    return character
