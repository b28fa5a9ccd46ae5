"""Tokens to text as they come: whole characters only, and not past a stop string.

Small machines on streams of tokens. None of them knows a model.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from clearformer.text import ByteFallbackPairs, BytePairs, Bytes, Tokenizer
from clearformer.text.specs import BytePairSpec, byte_characters

BROKEN = "\ufffd"
LONGEST = 4  # bytes of a character in UTF-8, so tokens that one may take
LETTERS = {letter: byte for byte, letter in enumerate(byte_characters())}
ONE_BYTE = re.compile("<0x([0-9a-fA-F]{2})>")


@dataclass(frozen=True)
class Token:
    """A token as it was drawn: bits is how surprised the model itself was, before any rule."""

    id: int
    text: str  # what it adds; empty while a character is not all there
    probability: float  # after all rules
    bits: float
    uniform: float  # the number that drew it


class Detokenizer(Protocol):
    """What each token adds to a text: together, what the tokenizer makes of all of them.

    A text is handed out as soon as no token that follows can change it.
    """

    @property
    def waiting(self) -> bool:
        """Whether there is a text that may still change."""

    def add(self, token: int) -> str: ...

    def flush(self) -> str:
        """What waits for bytes that will not come."""


def detokenizer(tokenizer: Tokenizer, before: Sequence[int] = ()) -> Detokenizer:
    """How this tokenizer's tokens spell a text that goes on from the tokens `before`."""
    match tokenizer:
        case Bytes() | BytePairs():
            return ByteDetokenizer(tokenizer, before)
        case ByteFallbackPairs():
            return ByteFallbackDetokenizer(tokenizer, before)
        case _:
            return PieceDetokenizer(tokenizer, before)


class PieceDetokenizer:
    """Tokens with a text of their own, which depends on whether one comes before it (a space
    joins two words) and on nothing else.
    """

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
    """Tokens that are bytes end to end; a character waits until all its bytes are there."""

    def __init__(self, tokenizer: Bytes | BytePairs, before: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.characters = codecs.getincrementaldecoder("utf-8")("replace")
        for token in before[-LONGEST:]:  # the last of them may have begun a character
            self.add(token)

    @property
    def waiting(self) -> bool:
        return bool(self.characters.getstate()[0])

    def add(self, token: int) -> str:
        return self.characters.decode(token_bytes(self.tokenizer, token))

    def flush(self) -> str:
        return self.characters.decode(b"", final=True)


class ByteFallbackDetokenizer:
    """Tokens that are characters, and single bytes for others: a run of such bytes is a text as a
    whole, or each of them is broken, so all of it waits until it ends or is beyond repair.
    """

    def __init__(self, tokenizer: ByteFallbackPairs, before: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.opens = len(before) == 0  # a space that opens a text is none of it
        self.run = self._begun(before)
        self.said = len(self.run)  # bytes of the run that have been shown as broken

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
        fresh = BROKEN * (len(self.run) - self.said)
        self.said = len(self.run)
        return self._said(fresh)

    def _said(self, text: str) -> str:
        if not self.opens or not text:
            return text
        self.opens = False
        return text.removeprefix(" ")

    def _begun(self, before: Sequence[int]) -> bytes:
        """The bytes of a character that ends in what follows."""
        found = b""
        for piece in self.tokenizer.pieces(before[1 - LONGEST :]):
            byte = one_byte(piece)
            found = b"" if byte is None else found + byte
        return found[codecs.utf_8_decode(found, "replace", False)[1] :]


def token_bytes(tokenizer: Bytes | BytePairs, token: int) -> bytes:
    """The bytes that a token stands for; a special token's are its name."""
    tokenizer.check_ids([token])
    return bytes([token]) if isinstance(tokenizer, Bytes) else byte_level(tokenizer.spec, token)


def byte_level(parts: BytePairSpec, token: int) -> bytes:
    """The bytes of one of these tokens, by its letters."""
    name = parts.vocabulary[token]
    try:
        return bytes(LETTERS[letter] for letter in name)
    except KeyError:
        return name.encode()


def one_byte(piece: str) -> bytes | None:
    """The byte that a token of a single byte stands for."""
    found = ONE_BYTE.fullmatch(piece)
    return None if found is None else bytes.fromhex(found[1])


def _may_be_text(data: bytes) -> bool:
    """Whether these bytes are UTF-8, but for a last character that has only begun."""
    try:
        codecs.utf_8_decode(data, "strict", False)
    except UnicodeDecodeError:
        return False
    return True


class StopStrings:
    """Lets tokens pass until their text has a stop string, wherever token borders lie.

    A token that may be the beginning of a stop string is held back until it is or is not. The
    text ends before the string; tokens inside it are not passed on.
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
        """What was held back for a string that did not come."""
        tokens, self.held = self.held, []
        return tokens

    def _beginning(self, text: str) -> int:
        """How many characters at the end of the text may begin a stop string."""
        longest = max(map(len, self.strings), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(string.startswith(text[-length:]) for string in self.strings):
                return length
        return 0

    def _release(self, characters: int) -> list[Token]:
        """The held tokens that end within the first so many characters."""
        count = end = 0
        for token in self.held:
            end += len(token.text)
            if end > characters:
                break
            count += 1
        passed, self.held = self.held[:count], self.held[count:]
        return passed

    def _cut(self, characters: int) -> Iterator[Token]:
        """The held tokens, cut after so many characters."""
        start = 0
        for token in self.held:
            if start >= characters:
                break
            yield replace(token, text=token.text[: characters - start])
            start += len(token.text)
        self.held = []
