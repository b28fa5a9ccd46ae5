"""BPE over characters with byte fallback: Llama 2's tokenizer.

SentencePiece's BPE as it is written in a tokenizer.json: a text gets a space in front, spaces
become `▁`, and a character outside the vocabulary is spelled by its UTF-8 bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from clearformer.text import hf_tokenizers
from clearformer.text.specs import Merges, require_merges, require_vocabulary
from clearformer.text.subwords import LibraryTokenizer
from clearformer.text.tokenizer import Ids
from clearformer.text.utf8 import decode, require_unicode

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

SPACE = "▁"
UNKNOWN = "<unk>"
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))

REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, REPLACE]}
SPLIT = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": False}
DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
LeadingSpace = Literal["normalizer", "split", "always"]
# What inserts the leading space: (normalizer, pre-tokenizer). The first differs from the others
# where a text begins with a space; the last also inserts a space after every special token.
LEADING_SPACE: dict[LeadingSpace, tuple[Any, Any]] = {
    "normalizer": (PREPEND, None),
    "split": (None, SPLIT),
    "always": (None, {**SPLIT, "prepend_scheme": "always"}),
}


@dataclass(frozen=True)
class FallbackSpec:
    """A BPE tokenizer with byte fallback."""

    vocabulary: tuple[str, ...]  # in the order of ids, special tokens included
    merges: Merges
    leading_space: LeadingSpace = "normalizer"
    specials: tuple[str, ...] = (UNKNOWN,)
    prefix: tuple[str, ...] = ()  # special tokens before a row that is one whole text

    def __post_init__(self) -> None:
        require_vocabulary(self.vocabulary, (*self.specials, *self.prefix))
        missing = {*BYTES, UNKNOWN} - set(self.vocabulary)
        if missing:
            raise ValueError(
                f"{len(missing)} of the 256 bytes and {UNKNOWN} are missing from the vocabulary, "
                f"so some text could not be encoded"
            )
        require_merges(self.merges, self.vocabulary)


class ByteFallbackPairs(LibraryTokenizer):
    """Encodes any text; special tokens are inserted by their id only."""

    kind = "fallback-bpe"

    def __init__(self, spec: FallbackSpec) -> None:
        self.spec = spec
        super().__init__(write_fallback(spec), spec.prefix, match_specials=False)

    @classmethod
    def from_library(cls, data: Any) -> Self:
        return cls(read_fallback(data))

    def _stream_texts(self, chunks: Iterable[bytes]) -> Iterator[str]:
        # A chunk on its own would get a leading space that the whole text does not have there.
        yield decode(b"".join(chunks))

    def pieces(self, ids: ArrayLike) -> list[str]:
        return [piece.replace(SPACE, " ") for piece in super().pieces(ids)]

    def encode_with_specials(self, text: str) -> Ids:
        """As the library does it: a text after a special token gets no leading space."""
        self.library.encode_special_tokens = False
        try:
            return super().encode(text)
        finally:
            self.library.encode_special_tokens = True

    def encode_continuation(self, text: str) -> Ids:
        require_unicode(text)
        ids = self._without_leading_space.encode(text, add_special_tokens=False).ids
        return np.asarray(ids, dtype=np.int32)

    @cached_property
    def _without_leading_space(self) -> "Library":
        document = {**self.document, "normalizer": REPLACE, "pre_tokenizer": None}
        library = hf_tokenizers.open_library(document)
        library.encode_special_tokens = True
        return library


def read_fallback(data: Any) -> FallbackSpec:
    """The specification in a library's JSON; ValueError unless it is such a tokenizer."""
    stages = {"normalizer", "pre_tokenizer", "decoder", "post_processor"}
    hf_tokenizers.require_keys(data, "", {"version", "model", "added_tokens", *stages})
    names = {"type", "vocab", "merges", "unk_token", "fuse_unk", "byte_fallback"}
    model = hf_tokenizers.require_keys(data.get("model"), "model", names)
    # transformers 5 writes null as unk_token: with all 256 bytes, no character is unknown.
    hf_tokenizers.expect(model, "model", type="BPE", unk_token=(UNKNOWN, None), byte_fallback=True)
    actual = data.get("normalizer"), data.get("pre_tokenizer")
    leading_space = next((name for name, each in LEADING_SPACE.items() if each == actual), None)
    if leading_space is None:
        raise ValueError(
            f"normalizer and pre_tokenizer are {actual!r:.120}, which is not supported: "
            f"clearformer would give other ids than the original tokenizer"
        )
    if data.get("decoder") != DECODER:
        raise ValueError(f"decoder is {data.get('decoder')!r:.120}, which is not supported")
    vocabulary, specials = hf_tokenizers.read_special_vocabulary(data)
    return FallbackSpec(
        vocabulary=tuple(vocabulary),
        merges=hf_tokenizers.read_merges(model),
        leading_space=leading_space,
        specials=specials,
        prefix=hf_tokenizers.read_prefix(data.get("post_processor"), vocabulary),
    )


def write_fallback(spec: FallbackSpec) -> dict[str, Any]:
    """JSON for the library; the inverse of `read_fallback`."""
    normalizer, pre_tokenizer = LEADING_SPACE[spec.leading_space]
    return hf_tokenizers.write_document(
        spec,
        model={
            "type": "BPE",
            "unk_token": UNKNOWN,
            "fuse_unk": True,
            "byte_fallback": True,
            "merges": [list(merge) for merge in spec.merges],
        },
        prefix=spec.prefix,
        normalizer=normalizer,
        pre_tokenizer=pre_tokenizer,
        decoder=DECODER,
    )
