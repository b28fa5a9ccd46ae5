"""Base class of all tokenizers: text to ids, ids to text, and JSON.

A tokenizer is immutable: it is trained once and stored with the model that uses its ids.
`sha256` is its identity, so that no model is opened with the tokenizer of another.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearformer.text.utf8 import CHUNK, text_chunks

Ids = NDArray[np.int32]

CHUNKS_PER_BATCH = 8  # chunks of a stream encoded together: the library's tokenizers use all cores


class Tokenizer:
    """Subclasses define `size`, `encode`, `decode`, `pieces`, `to_json` and `from_json`."""

    kind: ClassVar[str]
    padding: int = 0  # any id will do: padding is never attended to
    prefix_ids: tuple[int, ...] = ()  # ids before a row that is one whole text
    suffix_ids: tuple[int, ...] = ()  # ids after such a row
    mask: int | None = None  # the id of the mask token, if there is one
    specials: Mapping[str, int] = MappingProxyType({})  # ids of special tokens by name
    ids_are_bytes: ClassVar[bool] = False  # each id is a byte, so that any file has ids
    unsplittable: tuple[str, ...] = ()  # tokens that a stream must not be split within

    @classmethod
    def train(cls, texts: Iterable[str], size: int | None = None) -> Self:
        """Train a tokenizer with at most `size` ids (default: that of the class)."""
        raise ValueError(
            f"a {cls.kind} tokenizer comes with a checkpoint and cannot be trained here: use bpe"
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The tokenizer from its `to_json`; ValueError if it is damaged."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Everything needed to rebuild the tokenizer, including its `kind`."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Number of ids: the model's vocabulary."""
        raise NotImplementedError

    def encode(self, text: str) -> Ids:
        """The ids of a text, without `prefix_ids` and `suffix_ids`."""
        raise NotImplementedError

    def encode_with_specials(self, text: str) -> Ids:
        """The ids of a text that may name special tokens."""
        return self.encode(text)

    def encode_continuation(self, text: str) -> Ids:
        """The ids of a text that continues another one (no leading space is inserted)."""
        return self.encode(text)

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text."""
        return [self.encode(text) for text in texts]

    def encode_targets(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of the target texts of a translator."""
        return self.encode_many(texts)

    def encode_stream(self, chunks: Iterable[bytes]) -> Iterator[Ids]:
        """The ids of a UTF-8 text of any length, in parts; together equal to `encode`.

        The name of a special token means the same as in `encode`, wherever a chunk ends.
        """
        batch: list[str] = []
        for text in self._stream_texts(chunks):
            batch.append(text)
            if len(batch) == CHUNKS_PER_BATCH or len(text) > CHUNK:
                yield from self.encode_many(batch)
                batch = []
        yield from self.encode_many(batch)

    def _stream_texts(self, chunks: Iterable[bytes]) -> Iterator[str]:
        """The text in parts that can be encoded independently."""
        return text_chunks(chunks, unsplittable=self.unsplittable)

    def decode(self, ids: ArrayLike) -> str:
        """The text of some ids; an incomplete character shows as \ufffd."""
        raise NotImplementedError

    def pieces(self, ids: ArrayLike) -> list[str]:
        """The text of each id, for display."""
        raise NotImplementedError

    def is_continuation(self) -> NDArray[np.bool_]:
        """For each id, whether it continues the word of the id before: (size,)."""
        return np.zeros(self.size, dtype=np.bool_)

    def check_ids(self, ids: ArrayLike) -> list[int]:
        """The ids as a list; ValueError if one is outside the vocabulary."""
        array = np.asarray(ids, dtype=np.int64).reshape(-1)
        outside = array[(array < 0) | (array >= self.size)]
        if outside.size:
            raise ValueError(
                f"id {outside[0]} is outside the vocabulary: this tokenizer ({self.kind}) "
                f"has the ids 0 to {self.size - 1}"
            )
        return array.tolist()


def sha256(tokenizer: Tokenizer) -> str:
    """Identity: the hash of the canonical JSON."""
    canonical = json.dumps(tokenizer.to_json(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def require_text(kind: str, has_text: bool) -> None:
    """ValueError for training without text."""
    if not has_text:
        raise ValueError(f"there is no text to train a {kind} tokenizer on: the input is empty")


def require_size(kind: str, size: int, minimum: int, reason: str) -> None:
    if size < minimum:
        raise ValueError(
            f"the vocabulary size of a {kind} tokenizer is {size}, but it must be at least "
            f"{minimum}: {reason}"
        )


def require_strings(value: Any, name: str) -> list[str]:
    """A list of strings from a JSON document."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name} is {value!r:.60}, but it must be a list of strings")
    return value
