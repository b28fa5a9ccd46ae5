"""Incremental detokenizers, and stop strings.

They turn a stream of tokens into text: whole characters only, and nothing past a stop string.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from clearformer.text import ByteFallbackPairs, BytePairs, Bytes, Tokenizer
from clearformer.text.specs import BytePairSpec, byte_characters

REPLACEMENT = "\ufffd"
MAX_BYTES = 4  # of a UTF-8 character
LETTERS = {letter: byte for byte, letter in enumerate(byte_characters())}
ONE_BYTE = re.compile("<0x([0-9a-fA-F]{2})>")


@dataclass(frozen=True)
class Alternative:
    """A token that might have been sampled, and its surprise in bits."""

    id: int
    bits: float


@dataclass(frozen=True)
class Token:
    """A sampled token; `bits` is its surprise under the model, before any processor."""

    id: int
    text: str  # what it adds to the text; empty while a character is incomplete
    probability: float  # after all processors
    bits: float
    uniform: float  # the number that selected it
    alternatives: tuple[Alternative, ...] = ()  # the most likely tokens, if they were asked for


class Detokenizer(Protocol):
    """Yields what each token adds to a text, as soon as no later token can change it.

    Together the parts are what the tokenizer decodes all tokens to.
    """

    @property
    def waiting(self) -> bool:
        """Whether some text is held back because it may still change."""

    def add(self, token: int) -> str: ...

    def flush(self) -> str:
        """The text that was held back, when no more tokens come."""


def detokenizer(tokenizer: Tokenizer, before: Sequence[int] = ()) -> Detokenizer:
    """The detokenizer for this tokenizer, continuing after the tokens `before`."""
    match tokenizer:
        case Bytes() | BytePairs():
            return ByteDetokenizer(tokenizer, before)
        case ByteFallbackPairs():
            return ByteFallbackDetokenizer(tokenizer, before)
        case _:
            return PieceDetokenizer(tokenizer, before)


class PieceDetokenizer:
    """For tokens whose text depends at most on whether a token precedes (a space joins words)."""

    waiting = False

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.previous = list(before[-1:])

    def add(self, token: int) -> str:
        both = self.tokenizer.decode([*self.previous, token])
        alone = len(self.tokenizer.decode(self.previous))
        self.previous = [token]
        return both[alone:]

    def flush(self) -> str:
        return ""


class ByteDetokenizer:
    """For byte-level tokens: a character is held back until it has all its bytes."""

    def __init__(self, tokenizer: Bytes | BytePairs, before: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.characters = codecs.getincrementaldecoder("utf-8")("replace")
        last = before[-MAX_BYTES:]  # they may end inside a character
        self.characters.decode(token_bytes(tokenizer, *last))

    @property
    def waiting(self) -> bool:
        return bool(self.characters.getstate()[0])

    def add(self, token: int) -> str:
        return self.characters.decode(token_bytes(self.tokenizer, token))

    def flush(self) -> str:
        return self.characters.decode(b"", final=True)


class ByteFallbackDetokenizer:
    """For tokens of characters with a fallback to single bytes.

    A run of such bytes decodes as a whole or not at all, so it is held back until it ends or is
    invalid.
    """

    def __init__(self, tokenizer: ByteFallbackPairs, before: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.opens = len(before) == 0  # the leading space of a text is dropped
        self.run = self._begun(before)
        self.said = len(self.run)  # bytes of the run already shown as U+FFFD

    @property
    def waiting(self) -> bool:
        return len(self.run) > self.said

    def add(self, token: int) -> str:
        (piece,) = self.tokenizer.pieces([token])
        byte = one_byte(piece)
        if byte is None:
            return self.flush() + self._said(piece)
        self.run += byte
        return "" if _may_be_text(self.run) else self._broken()

    def flush(self) -> str:
        try:
            text = self._said(self.run.decode())
        except UnicodeDecodeError:
            text = self._broken()
        self.run, self.said = b"", 0
        return text

    def _broken(self) -> str:
        fresh = REPLACEMENT * (len(self.run) - self.said)
        self.said = len(self.run)
        return self._said(fresh)

    def _said(self, text: str) -> str:
        if not self.opens or not text:
            return text
        self.opens = False
        return text.removeprefix(" ")

    def _begun(self, before: Sequence[int]) -> bytes:
        """The bytes at the end of the prompt that begin a character."""
        found = b""
        for piece in self.tokenizer.pieces(before[1 - MAX_BYTES :]):
            byte = one_byte(piece)
            found = b"" if byte is None else found + byte
        return found[codecs.utf_8_decode(found, "replace", False)[1] :]


def token_bytes(tokenizer: Bytes | BytePairs, *tokens: int) -> bytes:
    """The bytes of tokens; of a special token, its name."""
    tokenizer.check_ids(tokens)
    if isinstance(tokenizer, Bytes):
        return bytes(tokens)
    return b"".join(byte_level(tokenizer.spec, token) for token in tokens)


def byte_level(parts: BytePairSpec, token: int) -> bytes:
    """The bytes of a byte-level BPE token."""
    name = parts.vocabulary[token]
    try:
        return bytes(LETTERS[letter] for letter in name)
    except KeyError:
        return name.encode()


def one_byte(piece: str) -> bytes | None:
    """The byte of a byte-fallback token such as <0x0A>, or None."""
    found = ONE_BYTE.fullmatch(piece)
    return None if found is None else bytes.fromhex(found[1])


def _may_be_text(data: bytes) -> bool:
    """Whether these bytes are valid UTF-8, possibly with an incomplete last character."""
    try:
        codecs.utf_8_decode(data, "strict", False)
    except UnicodeDecodeError:
        return False
    return True


class StopStrings:
    """Passes tokens on until their text contains a stop string, wherever tokens end.

    Tokens that may begin a stop string are held back until that is decided. The text ends before
    the stop string.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        if any(not string for string in strings):
            raise ValueError("a stop string is empty, so no text could begin: leave it out")
        self.strings = tuple(strings)
        self.held: list[Token] = []
        self.found = False

    def add(self, token: Token) -> list[Token]:
        self.held.append(token)
        text = "".join(each.text for each in self.held)
        places = [place for string in self.strings if (place := text.find(string)) >= 0]
        if places:
            self.found = True
            return list(self._cut(min(places)))
        return self._release(len(text) - self._beginning(text))

    def flush(self) -> list[Token]:
        """The tokens held back for a stop string that did not come."""
        tokens, self.held = self.held, []
        return tokens

    def _beginning(self, text: str) -> int:
        """The number of characters at the end of the text that may begin a stop string."""
        longest = max(map(len, self.strings), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(string.startswith(text[-length:]) for string in self.strings):
                return length
        return 0

    def _release(self, characters: int) -> list[Token]:
        """The held tokens that end within the first `characters` characters."""
        count = end = 0
        for token in self.held:
            end += len(token.text)
            if end > characters:
                break
            count += 1
        passed, self.held = self.held[:count], self.held[count:]
        return passed

    def _cut(self, characters: int) -> Iterator[Token]:
        """The held tokens, cut after `characters` characters."""
        start = 0
        for token in self.held:
            if start >= characters:
                break
            yield replace(token, text=token.text[: characters - start])
            start += len(token.text)
        self.held = []
