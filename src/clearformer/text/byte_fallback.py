"""Byte pairs over characters, and single bytes for what they do not know: Llama 2's tokenizer.

SentencePiece's BPE as a tokenizer.json has it: a text gets a space in front, spaces become a sign
of their own, and a character outside the vocabulary is spelled by the bytes of its UTF-8.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from clearformer.text import hf_tokenizers
from clearformer.text.specs import require_vocabulary
from clearformer.text.subwords import LibraryTokenizer
from clearformer.text.tokenizer import Ids, Tokenizer
from clearformer.text.utf8 import decode, require_unicode

SPACE = "▁"
UNKNOWN = "<unk>"
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))

REPLACED = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
PREPENDED = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, REPLACED]}
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
ALWAYS = {**SPLIT, "prepend_scheme": "always"}
# How the space in front is written down. The first differs from the others where a text begins
# with a space; the last also puts one behind every special token.
FRONTS: dict[str, tuple[Any, Any]] = {
    "normalizer": (PREPENDED, None),
    "split": (None, SPLIT),
    "always": (None, ALWAYS),
}


@dataclass(frozen=True)
class FallbackSpec:
    """All there is to such a tokenizer."""

    vocabulary: tuple[str, ...]  # in the order of ids, special tokens included
    merges: tuple[tuple[str, str], ...]  # the earlier, the sooner
    front: Literal["normalizer", "split", "always"] = "normalizer"
    specials: tuple[str, ...] = (UNKNOWN,)
    opening: tuple[str, ...] = ()  # special tokens that open a row that is one whole text

    def __post_init__(self) -> None:
        require_vocabulary(self.vocabulary, (*self.specials, *self.opening))
        known = set(self.vocabulary)
        missing = {*BYTES, UNKNOWN} - known
        if missing:
            raise ValueError(
                f"{len(missing)} of the 256 bytes and {UNKNOWN} are missing from the vocabulary, "
                f"so some text could not be encoded"
            )
        for first, second in self.merges:
            for part in (first, second, first + second):
                if part not in known:
                    raise ValueError(
                        f"the merge of {first!r} and {second!r} needs {part!r}, which is not in "
                        f"the vocabulary"
                    )


class ByteFallbackPairs(LibraryTokenizer):
    """Any text has ids; special tokens are put in by their id alone."""

    kind = "fallback-bpe"

    def __init__(self, spec: FallbackSpec) -> None:
        self.spec = spec
        self._open(write(spec))
        self.library.encode_special_tokens = True
        self.prefix_ids = tuple(self.specials[name] for name in spec.opening)

    @classmethod
    def from_library(cls, data: Any) -> "ByteFallbackPairs":
        """From the library's own JSON (Hugging Face's tokenizer.json)."""
        return cls(read(data))

    def _stream_texts(self, chunks: Iterable[bytes]) -> Iterator[str]:
        # A chunk of its own would get a space in front that the whole text does not have there.
        yield decode(b"".join(chunks))

    def pieces(self, ids: ArrayLike) -> list[str]:
        tokens = self.spec.vocabulary
        return [tokens[i].replace(SPACE, " ") for i in self.checked(ids).tolist()]

    def encode_with_specials(self, text: str) -> Ids:
        """As the library does it: a text behind a special token gets no space in front."""
        self.library.encode_special_tokens = False
        try:
            return super().encode(text)
        finally:
            self.library.encode_special_tokens = True

    def encode_continuation(self, text: str) -> Ids:
        """Without the space that opens a text."""
        require_unicode(text)
        found = self._inside.encode(text, add_special_tokens=False).ids
        return np.asarray(found, dtype=np.int32)

    @cached_property
    def _inside(self) -> Any:
        """The library's tokenizer for what stands inside a text."""
        inside = {**self.document, "normalizer": REPLACED, "pre_tokenizer": None}
        opened = hf_tokenizers.open_library(inside)
        opened.encode_special_tokens = True
        return opened


def learn(texts: Iterable[str], size: int | None) -> Tokenizer:
    raise ValueError(
        "a fallback-bpe tokenizer comes with a checkpoint and is not learned here: use bpe"
    )


def read(data: Any) -> FallbackSpec:
    """The values in a library's JSON, if it is such a tokenizer."""
    stages = {"normalizer", "pre_tokenizer", "decoder", "post_processor"}
    hf_tokenizers.known_keys(data, "", {"version", "model", "added_tokens", *stages})
    names = {"type", "vocab", "merges", "unk_token", "fuse_unk", "byte_fallback"}
    model = hf_tokenizers.known_keys(data.get("model"), "model", names)
    hf_tokenizers.expect(model, "model", "type", "BPE")
    # transformers 5 writes null. It is the same: with all 256 bytes there, nothing is unknown.
    hf_tokenizers.expect(model, "model", "unk_token", UNKNOWN, None)
    hf_tokenizers.expect(model, "model", "byte_fallback", True)
    found = data.get("normalizer"), data.get("pre_tokenizer")
    front = next((name for name, stages in FRONTS.items() if stages == found), None)
    if front is None:
        raise ValueError(
            f"normalizer and pre_tokenizer are {found!r:.120}, which is not supported: clearformer "
            f"would give other ids than the tokenizer's maker meant"
        )
    if data.get("decoder") != DECODER:
        raise ValueError(f"decoder is {data.get('decoder')!r:.120}, which is not supported")
    vocabulary = hf_tokenizers.vocabulary_of(model)
    specials = hf_tokenizers.added_tokens(data, vocabulary)
    return FallbackSpec(
        vocabulary=tuple(vocabulary),
        merges=tuple(hf_tokenizers.merges_of(model)),
        front=front,  # type: ignore[arg-type]
        specials=specials,
        opening=hf_tokenizers.opening_tokens(data.get("post_processor"), vocabulary),
    )


def write(spec: FallbackSpec) -> dict[str, Any]:
    """JSON that the library reads; it says nothing that `read` does not know."""
    normalizer, split = FRONTS[spec.front]
    post: dict[str, Any] = (
        {"post_processor": hf_tokenizers.write_template(spec, spec.opening, ())}
        if spec.opening
        else {}
    )
    return hf_tokenizers.document(
        spec,
        model={
            "type": "BPE",
            "unk_token": UNKNOWN,
            "fuse_unk": True,
            "byte_fallback": True,
            "merges": [list(merge) for merge in spec.merges],
        },
        normalizer=normalizer,
        pre_tokenizer=split,
        decoder=DECODER,
        **post,
    )
