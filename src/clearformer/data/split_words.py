"""Words of a text with their positions, and the tokens of each word.

Each word is encoded on its own, behind a space unless it begins the text or touches the word before
it, so that every token belongs to one word. A WordPiece tokenizer gives the ids of the whole text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearformer.text.tokenizer import Tokenizer

WORD = re.compile(r"\w+|[^\w\s]")  # letters and digits in a row, or one other character


@dataclass(frozen=True)
class Word:
    """A word, and the characters of the text that it is."""

    text: str
    start: int
    end: int


def split_words(text: str) -> list[Word]:
    """The words of a text; punctuation marks are words of their own."""
    return [Word(found[0], found.start(), found.end()) for found in WORD.finditer(text)]


@dataclass(frozen=True)
class EncodedWords:
    """The tokens of words, and the word of each token."""

    ids: NDArray[np.int32]  # (T,)
    words: NDArray[np.int64]  # (T,)

    @property
    def firsts(self) -> NDArray[np.int64]:
        """The first token of each word."""
        return np.flatnonzero(np.diff(self.words, prepend=-1))


def encode_words(words: Sequence[Word], tokenizer: Tokenizer) -> EncodedWords:
    """The tokens of words of one text; every word has at least one."""
    ends = [0, *(word.end for word in words)]
    spaced = [
        f" {word.text}" if place > 0 and word.start > ends[place] else word.text
        for place, word in enumerate(words)
    ]
    unknown = np.array([tokenizer.specials.get("[UNK]", tokenizer.padding)], dtype=np.int32)
    encoded = [ids if len(ids) else unknown for ids in tokenizer.encode_many(spaced)]
    counts = [len(ids) for ids in encoded]
    flat = np.concatenate([*encoded, np.zeros(0, dtype=np.int32)]).astype(np.int32)
    return EncodedWords(flat, np.repeat(np.arange(len(words)), counts))


def as_words(words: Sequence[str]) -> list[Word]:
    """Words that are already split, as if single spaces were between them."""
    found, start = [], 0
    for text in words:
        found.append(Word(text, start, start + len(text)))
        start += len(text) + 1
    return found
