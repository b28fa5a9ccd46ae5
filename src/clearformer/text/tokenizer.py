"""What every tokenizer can do: text to ids, ids to text, and itself to JSON.

A tokenizer is a value: trained once, never changed, stored with the model that learned its
ids. `sha256` is its identity, so that no model is ever opened with another's tokenizer.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearformer.text.utf8 import CHUNK, decode, text_chunks

Ids = NDArray[np.int32]

TOGETHER = 8  # chunks of a stream encoded at a time: the library's tokenizers use all cores


class Tokenizer:
    """Base of all tokenizers: `encode`, `pieces` and `decode` are the rule, the rest follows."""

    kind: ClassVar[str]
    padding: int = 0  # any id will do: nobody sees padding
    prefix_ids: tuple[int, ...] = ()  # ids that open a row that is one whole text
    suffix_ids: tuple[int, ...] = ()  # and those that close it
    mask: int | None = None  # the id that stands for a hidden token, if there is one
    specials: Mapping[str, int] = MappingProxyType({})  # ids that are no text, by name
    whole: tuple[str, ...] = ()  # names of tokens that a stream is not cut inside of

    @property
    def size(self) -> int:
        """How many ids there are: the model's vocabulary."""
        raise NotImplementedError

    def encode(self, text: str) -> Ids:
        """The ids of a text, without the marks of `prefix_ids` and `suffix_ids`."""
        raise NotImplementedError

    def encode_with_specials(self, text: str) -> Ids:
        """The ids of a text that may name special tokens; most tokenizers have none."""
        return self.encode(text)

    def encode_continuation(self, text: str) -> Ids:
        """The ids of a text that goes on with another; most tokenizers open a text with nothing."""
        return self.encode(text)

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text."""
        return [self.encode(text) for text in texts]

    def encode_targets(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of texts that a translator writes; most tokenizers treat them as any other."""
        return self.encode_many(texts)

    def encode_bytes(self, data: bytes) -> Ids:
        """The ids of a text in UTF-8; anything else is an error with its place."""
        return self.encode(decode(data))

    def encode_stream(self, chunks: Iterable[bytes]) -> Iterator[Ids]:
        """The ids of a text of any length, some at a time, equal to those of `encode`.

        The name of a special token in the text means what it means to `encode`, wherever the
        chunks end.
        """
        return self._streamed(chunks, self.encode_many)

    def encode_stream_with_specials(self, chunks: Iterable[bytes]) -> Iterator[Ids]:
        """Like `encode_stream`, with the ids of `encode_with_specials`."""
        if not self.specials:
            return self.encode_stream(chunks)
        return self._streamed(chunks, lambda texts: list(map(self.encode_with_specials, texts)))

    def _streamed(
        self, chunks: Iterable[bytes], encode: Callable[[Sequence[str]], list[Ids]]
    ) -> Iterator[Ids]:
        together: list[str] = []
        for text in self._stream_texts(chunks):
            together.append(text)
            if len(together) == TOGETHER or len(text) > CHUNK:
                yield from encode(together)
                together = []
        yield from encode(together)

    def _stream_texts(self, chunks: Iterable[bytes]) -> Iterator[str]:
        """The text in parts that can be encoded one by one."""
        return text_chunks(chunks, whole=self.whole)

    def decode(self, ids: ArrayLike) -> str:
        """The text of some ids; a character that is cut shows as \ufffd."""
        raise NotImplementedError

    def pieces(self, ids: ArrayLike) -> list[str]:
        """What each id stands for, to be shown."""
        raise NotImplementedError

    def continues(self) -> NDArray[np.bool_]:
        """Of each id, whether it goes on with the word of the id before: (size,)."""
        return np.zeros(self.size, dtype=np.bool_)

    def to_json(self) -> dict[str, Any]:
        """Everything needed to make it again, with its `kind`."""
        raise NotImplementedError

    def checked(self, ids: ArrayLike) -> NDArray[np.int64]:
        """The ids as an array, none outside the vocabulary."""
        array = np.asarray(ids, dtype=np.int64).reshape(-1)
        outside = array[(array < 0) | (array >= self.size)]
        if outside.size:
            raise ValueError(
                f"id {outside[0]} is outside the vocabulary: this tokenizer ({self.kind}) "
                f"has the ids 0 to {self.size - 1}"
            )
        return array


def sha256(tokenizer: Tokenizer) -> str:
    """Identity: equal if and only if the JSON is, whatever its order and spacing in a file."""
    canonical = json.dumps(tokenizer.to_json(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def require_text(kind: str, found: bool) -> None:
    """A vocabulary cannot be learned from nothing."""
    if not found:
        raise ValueError(f"there is no text to learn a {kind} tokenizer from: the input is empty")


def require_size(kind: str, size: int, least: int, reason: str) -> None:
    if size < least:
        raise ValueError(
            f"the vocabulary of a {kind} tokenizer is to be {size}, "
            f"but it must be at least {least}: {reason}"
        )
