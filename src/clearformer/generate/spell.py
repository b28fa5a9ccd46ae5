"""Tokens to text as they come: whole characters only, and not past a stop string.

Three small machines on streams of tokens. None of them knows a model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from clearformer.text import Tokenizer

BROKEN = "\ufffd"
LONGEST = 4  # bytes of a character in UTF-8, so tokens that one may take
MANY = 32  # tokens of broken characters, of which the older half is no longer of use


@dataclass(frozen=True)
class Token:
    """A token as it was drawn: bits is how surprised the model itself was, before any rule."""

    id: int
    text: str  # what it adds; empty while a character is not all there
    probability: float  # after all rules
    bits: float
    uniform: float  # the number that drew it


class Spelling:
    """What each token adds to a text; a character whose bytes are not all there waits for them.

    A token's text may depend on the one before (words are joined by spaces), so a token is
    decoded together with those that the last text came from.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.ids = list(before[-LONGEST:])
        self.text = tokenizer.decode(self.ids)
        self.said = len(self.text)  # characters of the text that are known
        self.whole = len(self.ids)  # tokens up to the last whole character

    @property
    def waiting(self) -> bool:
        return self.said < len(self.text)

    def add(self, token: int) -> str:
        self.ids.append(token)
        self.text = self.tokenizer.decode(self.ids)
        # Only what the bytes of one character may still become can change.
        broken = len(self.text) - len(self.text.rstrip(BROKEN))
        fresh = self._say(len(self.text) - min(broken, LONGEST - 1))
        if not broken:
            self._forget(self.whole)
            self.whole = len(self.ids)
        elif len(self.ids) > MANY:
            self._forget(len(self.ids) // 2)
        return fresh

    def rest(self) -> str:
        """What waits for bytes that will not come."""
        return self._say(len(self.text))

    def _say(self, end: int) -> str:
        fresh, self.said = self.text[self.said : end], max(self.said, end)
        return fresh

    def _forget(self, count: int) -> None:
        """Leave out the first tokens, if the text of the others does not depend on them."""
        rest = self.tokenizer.decode(self.ids[count:])
        if count == self.whole or self.tokenizer.decode(self.ids[:count]) + rest == self.text:
            self.said -= len(self.text) - len(rest)
            self.ids, self.text, self.whole = self.ids[count:], rest, 0


class Stops:
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

    def rest(self) -> list[Token]:
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
