"""The tokenizers that need no library: bytes, characters, words."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from clearformer.text.tokenizer import Ids, Tokenizer, require_size, require_text
from clearformer.text.utf8 import require_unicode

REPLACEMENT = "\ufffd"  # Unicode's sign for a character that could not be shown


class Bytes(Tokenizer):
    """The 256 bytes: nothing to learn, nothing unknown, any file at all."""

    kind = "bytes"

    @property
    def size(self) -> int:
        return 256

    def encode(self, text: str) -> Ids:
        require_unicode(text)
        return self.encode_bytes(text.encode("utf-8"))

    def encode_bytes(self, data: bytes) -> Ids:
        return np.frombuffer(data, dtype=np.uint8).astype(np.int32)

    def encode_stream(self, chunks: Iterable[bytes]) -> Iterator[Ids]:
        return map(self.encode_bytes, chunks)

    def decode(self, ids: ArrayLike) -> str:
        return self.checked(ids).astype(np.uint8).tobytes().decode("utf-8", "replace")

    def pieces(self, ids: ArrayLike) -> list[str]:
        return [chr(i) if 32 <= i < 127 else f"\\x{i:02x}" for i in self.checked(ids).tolist()]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind}


class Characters(Tokenizer):
    """The characters of the training text in the order of Unicode, after 0 = unknown."""

    kind = "characters"
    unknown = 0

    def __init__(self, characters: str) -> None:
        if not characters or list(characters) != sorted(set(characters)):
            raise ValueError("the characters must be different, in the order of Unicode, not none")
        require_unicode(characters)
        self.characters = characters
        self._codes = _codes(characters)

    @classmethod
    def train(cls, texts: Iterable[str], size: int | None = None) -> "Characters":
        """All characters, or the `size` - 1 most common."""
        counts: Counter[str] = Counter()
        for text in texts:
            require_unicode(text)
            counts.update(text)
        require_text(cls.kind, bool(counts))
        if size is not None:
            require_size(cls.kind, size, 2, "one for a character, one for all that are unknown")
        return cls("".join(sorted(_most_common(counts, None if size is None else size - 1))))

    @property
    def size(self) -> int:
        return len(self.characters) + 1

    def encode(self, text: str) -> Ids:
        require_unicode(text)
        codes = _codes(text)
        place = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        known = self._codes[place] == codes
        return np.where(known, place + 1, self.unknown).astype(np.int32)

    def decode(self, ids: ArrayLike) -> str:
        return "".join(self.pieces(ids))

    def pieces(self, ids: ArrayLike) -> list[str]:
        alphabet = REPLACEMENT + self.characters
        return [alphabet[i] for i in self.checked(ids).tolist()]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "characters": self.characters}


# A word with its apostrophes ("don't"), or one mark; reviews write line breaks as HTML.
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
LINE_BREAK = re.compile(r"<br\s*/?>")


def words_of(text: str) -> list[str]:
    """Lower-cased words and punctuation marks, in order."""
    return WORD.findall(LINE_BREAK.sub(" ", text.lower()))


class Words(Tokenizer):
    """Lower-cased words and marks, the most common ones, after 0 = padding and 1 = unknown.

    What the first seed's sentiment classifier reads. `decode` joins words with spaces: case
    and spacing of the text are gone.
    """

    kind = "words"
    unknown = 1

    def __init__(self, words: Sequence[str]) -> None:
        if not words or len(set(words)) != len(words) or not all(words):
            raise ValueError("the words must be different and not empty, and there must be some")
        require_unicode("".join(words))
        self.words = tuple(words)
        self._ids = {word: i for i, word in enumerate(words, start=2)}

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> "Words":
        """The `size` - 2 most common words; equally common ones in the order of Unicode."""
        counts: Counter[str] = Counter()
        for text in texts:
            require_unicode(text)
            counts.update(words_of(text))
        require_text(cls.kind, bool(counts))
        require_size(cls.kind, size, 3, "one for a word, one for padding, one for unknown words")
        return cls(_most_common(counts, size - 2))

    @property
    def size(self) -> int:
        return len(self.words) + 2

    def encode(self, text: str) -> Ids:
        require_unicode(text)
        found = words_of(text)
        ids = self._ids
        return np.fromiter((ids.get(word, 1) for word in found), np.int32, len(found))

    def decode(self, ids: ArrayLike) -> str:
        return " ".join(self.pieces(ids))

    def pieces(self, ids: ArrayLike) -> list[str]:
        names = ("[padding]", "[unknown]", *self.words)
        return [names[i] for i in self.checked(ids).tolist()]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "words": list(self.words)}


def _most_common(counts: Counter[str], number: int | None) -> list[str]:
    """Ties are broken by the word itself: `Counter.most_common` would keep the order of reading."""
    return sorted(counts, key=lambda each: (-counts[each], each))[:number]


def _codes(text: str) -> "np.ndarray[tuple[int], np.dtype[np.uint32]]":
    """The number of each character."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
