"""Tokenizers without a library: bytes, characters, words."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearformer.text.tokenizer import Ids, Tokenizer, require_size, require_strings, require_text
from clearformer.text.utf8 import require_unicode

REPLACEMENT = "\ufffd"  # Unicode's replacement character


class Bytes(Tokenizer):
    """The 256 bytes: nothing to learn, nothing unknown, accepts any file."""

    kind = "bytes"
    ids_are_bytes = True

    @classmethod
    def train(cls, texts: Iterable[str], size: int | None = None) -> Self:
        if size not in (None, 256):
            raise ValueError(
                f"the vocabulary size of a bytes tokenizer is {size}, but it must be 256: leave "
                f"the size out"
            )
        return cls()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls()

    @property
    def size(self) -> int:
        return 256

    def encode(self, text: str) -> Ids:
        require_unicode(text)
        return _byte_ids(text.encode("utf-8"))

    def encode_stream(self, chunks: Iterable[bytes]) -> Iterator[Ids]:
        return map(_byte_ids, chunks)

    def decode(self, ids: ArrayLike) -> str:
        return bytes(self.check_ids(ids)).decode("utf-8", "replace")

    def pieces(self, ids: ArrayLike) -> list[str]:
        return [chr(i) if 32 <= i < 127 else f"\\x{i:02x}" for i in self.check_ids(ids)]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind}


def _byte_ids(data: bytes) -> Ids:
    return np.frombuffer(data, dtype=np.uint8).astype(np.int32)


class Characters(Tokenizer):
    """The characters of the training text in Unicode order; id 0 is unknown."""

    kind = "characters"
    unknown = 0

    def __init__(self, characters: str) -> None:
        if not characters or list(characters) != sorted(set(characters)):
            raise ValueError("the characters must be unique, in Unicode order and not empty")
        require_unicode(characters)
        self.characters = characters
        self._codes = _codes(characters)

    @classmethod
    def train(cls, texts: Iterable[str], size: int | None = None) -> Self:
        """All characters, or the `size` - 1 most common."""
        counts = _counts(cls.kind, texts)
        if size is not None:
            require_size(cls.kind, size, 2, "one for a character, one for unknown characters")
        return cls("".join(sorted(_most_common(counts, None if size is None else size - 1))))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        characters = data.get("characters")
        if not isinstance(characters, str):
            raise ValueError(f"characters is {characters!r:.60}, but it must be a string")
        return cls(characters)

    @property
    def size(self) -> int:
        return len(self.characters) + 1

    def encode(self, text: str) -> Ids:
        require_unicode(text)
        codes = _codes(text)
        index = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        known = self._codes[index] == codes
        return np.where(known, index + 1, self.unknown).astype(np.int32)

    def decode(self, ids: ArrayLike) -> str:
        return "".join(self.pieces(ids))

    def pieces(self, ids: ArrayLike) -> list[str]:
        alphabet = REPLACEMENT + self.characters
        return [alphabet[i] for i in self.check_ids(ids)]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "characters": self.characters}


# A word with its apostrophes ("don't"), or one punctuation mark. IMDB has HTML line breaks.
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
LINE_BREAK = re.compile(r"<br\s*/?>")


def words_of(text: str) -> list[str]:
    """Lower-cased words and punctuation marks, in order."""
    return WORD.findall(LINE_BREAK.sub(" ", text.lower()))


class Words(Tokenizer):
    """The most common lower-cased words and punctuation marks; id 0 is padding, 1 is unknown.

    `decode` joins words with spaces: case and spacing of the text are lost.
    """

    kind = "words"
    unknown = 1

    def __init__(self, words: Sequence[str]) -> None:
        if not words or len(set(words)) != len(words) or not all(words):
            raise ValueError("the words must be unique and not empty, and there must be some")
        require_unicode("".join(words))
        self.words = tuple(words)
        self._ids = {word: i for i, word in enumerate(words, start=2)}

    @classmethod
    def train(cls, texts: Iterable[str], size: int | None = None) -> Self:
        """The `size` - 2 most common words (default: 50,000 ids); ties in Unicode order."""
        size = size or 50_000
        counts = _counts(cls.kind, texts, words_of)
        require_size(cls.kind, size, 3, "one for a word, one for padding, one for unknown words")
        return cls(_most_common(counts, size - 2))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(require_strings(data.get("words"), "words"))

    @property
    def size(self) -> int:
        return len(self.words) + 2

    def encode(self, text: str) -> Ids:
        require_unicode(text)
        ids = [self._ids.get(word, self.unknown) for word in words_of(text)]
        return np.array(ids, dtype=np.int32)

    def decode(self, ids: ArrayLike) -> str:
        return " ".join(self.pieces(ids))

    def pieces(self, ids: ArrayLike) -> list[str]:
        names = ("[padding]", "[unknown]", *self.words)
        return [names[i] for i in self.check_ids(ids)]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "words": list(self.words)}


def _counts(
    kind: str, texts: Iterable[str], split: Callable[[str], Iterable[str]] = iter
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        require_unicode(text)
        counts.update(split(text))
    require_text(kind, bool(counts))
    return counts


def _most_common(counts: Counter[str], number: int | None) -> list[str]:
    """Ties are broken by the word itself; `Counter.most_common` would use the order of the text."""
    return sorted(counts, key=lambda each: (-counts[each], each))[:number]


def _codes(text: str) -> NDArray[np.uint32]:
    """The code point of each character."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
