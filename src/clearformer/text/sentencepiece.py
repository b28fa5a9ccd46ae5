"""Marian's SentencePiece tokenizer: pieces by source.spm and target.spm, ids by vocab.json.

The `sentencepiece` library splits a text into pieces. An .spm file is an untrusted protocol buffer,
and the library trusts some of it: it follows the character normalization table without bounds
checks. So a file is first parsed here field by field, and refused if it points outside of itself.
"""

import base64
import binascii
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from clearformer import limits
from clearformer.text.tokenizer import Ids, Tokenizer, require_strings
from clearformer.text.utf8 import decode, require_unicode

MAX_PIECES = 2**22
UNKNOWN, END, PAD = "<unk>", "</s>", "<pad>"
UNKNOWN_TYPE = 2  # among the types of pieces; the library needs exactly one such piece
SPACE = "▁"
OPEN, CLOSE = ">>", "<<"  # around a language code at the start of a text: >>fra<<


class SentencePieces(Tokenizer):
    """Separate SentencePiece models for sources and targets, one vocabulary."""

    kind = "sentencepiece"

    def __init__(self, source: bytes, target: bytes, vocabulary: Sequence[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        self._ids = {token: i for i, token in enumerate(self.vocabulary)}
        if len(self._ids) != len(self.vocabulary):
            raise ValueError("the tokens of a vocabulary must be different")
        require_unicode("".join(self.vocabulary))
        for name in (UNKNOWN, END):
            if name not in self._ids:
                raise ValueError(f"the special token {name} is missing from the vocabulary")
        self.files = source, target
        self._source, self._target = _open(source, "source.spm"), _open(target, "target.spm")
        self.specials = {name: self._ids[name] for name in (UNKNOWN, END, PAD) if name in self._ids}
        self.padding = self.specials.get(PAD, 0)

    @property
    def size(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str) -> Ids:
        return self._encode(text, self._source)

    def encode_targets(self, texts: Sequence[str]) -> list[Ids]:
        return [self._encode(text, self._target) for text in texts]

    def _stream_texts(self, chunks: Iterable[bytes]) -> Iterator[str]:
        # The library inserts a leading space, and a language code is at the start only.
        yield decode(b"".join(chunks))

    def _encode(self, text: str, model: Any) -> Ids:
        require_unicode(text)
        end = text.find(CLOSE) + len(CLOSE) if text.startswith(OPEN) else 0
        code, rest = (text[:end], text[end:]) if end >= len(CLOSE) else ("", text)
        pieces = [code] if code else []
        pieces += model.encode(rest, out_type=str)
        unknown = self.specials[UNKNOWN]
        return np.array([self._ids.get(piece, unknown) for piece in pieces], dtype=np.int32)

    def decode(self, ids: ArrayLike) -> str:
        """The text, without special tokens."""
        special = set(self.specials.values())
        pieces = [self.vocabulary[i] for i in self.check_ids(ids) if i not in special]
        return str(self._target.decode_pieces(pieces)).replace(SPACE, " ").strip()

    def pieces(self, ids: ArrayLike) -> list[str]:
        return [self.vocabulary[i] for i in self.check_ids(ids)]

    def to_json(self) -> dict[str, Any]:
        source, target = (base64.b64encode(file).decode("ascii") for file in self.files)
        vocabulary = list(self.vocabulary)
        return {"kind": self.kind, "source": source, "target": target, "vocabulary": vocabulary}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        files = []
        for name in ("source", "target"):
            try:
                files.append(base64.b64decode(data.get(name, ""), validate=True))
            except (binascii.Error, TypeError, ValueError):
                raise ValueError(f"{name} is not a file in base64") from None
        source, target = files
        return cls(source, target, require_strings(data.get("vocabulary"), "vocabulary"))


def _open(file: bytes, name: str) -> Any:
    try:
        verify(file)
    except ValueError as problem:
        raise ValueError(f"{name} is not a valid SentencePiece model: {problem}") from None
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise ValueError(
            "this tokenizer needs the package sentencepiece: pip install 'clearformer[marian]'"
        ) from None
    try:
        return SentencePieceProcessor(model_proto=file)
    except (RuntimeError, ValueError, TypeError) as problem:
        reason = str(problem).strip().rpartition("] ")[2] or "it cannot be opened"
        raise ValueError(f"{name} is not a valid SentencePiece model: {reason:.120}") from None


# --- validation of the file ----------------------------------------------------------------

Value = int | bytes
PIECE, NORMALIZERS = 1, (3, 5)  # fields of a model; 5 undoes what 3 does
TEXT, SCORE, TYPE = 1, 2, 3  # fields of a piece
CHARACTERS = 2  # of a normalizer: its table


def verify(file: bytes) -> None:
    """ValueError unless every offset in the model points inside the file."""
    if len(file) > limits.MAX_SPM_BYTES:
        raise ValueError(
            f"it has {len(file):,} bytes, but the limit is {limits.MAX_SPM_BYTES:,} (MAX_SPM_BYTES)"
        )
    pieces = unknown = 0
    for field, value in fields(file):
        if field == PIECE:
            pieces += 1
            unknown += _piece(_bytes(value)) == UNKNOWN_TYPE
        elif field in NORMALIZERS:
            for inner, table in fields(_bytes(value)):
                if inner == CHARACTERS and table:
                    _verify_table(_bytes(table))
    if not 1 <= pieces <= MAX_PIECES or unknown != 1:
        raise ValueError(
            f"it has {pieces:,} pieces, {unknown:,} of them for unknown text, but it must have one "
            f"of these"
        )


def _piece(message: bytes) -> int:
    """The type of a piece; ValueError unless it is a text with a finite score."""
    values: dict[int, Value] = dict(fields(message))
    try:
        text = _bytes(values.get(TEXT, b"")).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("a piece is not UTF-8 text") from None
    score = values.get(SCORE, bytes(4))
    if not text or not isinstance(score, bytes) or not math.isfinite(_float(score)):
        raise ValueError(f"the piece {text!r:.40} is empty or has no score")
    kind = values.get(TYPE, 1)
    if not isinstance(kind, int) or not 1 <= kind <= 6:
        raise ValueError(f"the piece {text!r:.40} is of type {kind!r:.20}")
    return kind


def _verify_table(table: bytes) -> None:
    """A double-array trie, then the texts that its leaves point to.

    From the unit at index i, byte c leads to index i ^ offset ^ c; c = 0 leads to a leaf.
    """
    size = int.from_bytes(table[:4], "little")
    if len(table) < 4 or size % 1024 or not 0 < size <= len(table) - 4:
        raise ValueError("its table of characters has no valid size")
    units = np.frombuffer(table, dtype="<u4", count=size // 4, offset=4).astype(np.int64)
    texts = table[4 + size :]
    inner = units >> 31 == 0  # the others are leaves
    offset = (units >> 10) << ((units & 512) >> 6)
    target = np.arange(len(units)) ^ offset
    if (target | 255)[inner].max(initial=0) >= len(units):
        raise ValueError("its table of characters points outside of itself")
    leaves = units[target[inner & (units >> 8 & 1 == 1)]] & 0x7FFFFFFF
    if leaves.max(initial=0) >= len(texts) or texts[-1:] != b"\0":
        raise ValueError("its table of characters points past the end of its texts")


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Number and value of each field of a protocol buffer, to the last byte."""
    offset = 0
    while offset < len(message):
        key, offset = _varint(message, offset)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value: Value
            value, offset = _varint(message, offset)
        else:
            if kind == 2:
                length, offset = _varint(message, offset)
            else:
                length = {1: 8, 5: 4}.get(kind, len(message) + 1)
            value = message[offset : offset + length]
            offset += length
        if offset > len(message) or number == 0:
            raise ValueError("it was cut, or is something else")
        yield number, value


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if offset >= len(message) or shift > 63:
            raise ValueError("it was cut, or is something else")
        byte = message[offset]
        number |= (byte & 127) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 128:
            return number, offset


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("it has a number instead of a text")
    return value


def _float(value: bytes) -> float:
    if len(value) != 4:
        raise ValueError("a score is not a number")
    return float(struct.unpack("<f", value)[0])
