"""SentencePiece as Marian has it: pieces by source.spm and target.spm, ids by vocab.json.

Cutting a text into pieces is the `sentencepiece` library's. An .spm file is a protocol buffer from
anyone, and the library trusts some of it: the table by which characters are normalised is walked
without looking where it ends. So a file is read here first, field by field, and what could lead
outside of it is refused.
"""

import base64
import binascii
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from clearformer.text.tokenizer import Ids, Tokenizer
from clearformer.text.utf8 import decode, require_unicode

LARGEST = 64 * 2**20  # bytes of an .spm file; published ones have about one million
MOST_PIECES = 2**22
UNKNOWN, END, PAD = "<unk>", "</s>", "<pad>"
UNKNOWN_TYPE = 2  # among the types of pieces; the library needs exactly one of it
SPACE = "▁"
OPEN, CLOSE = ">>", "<<"  # around the code of a language that opens a text: >>fra<<


class SentencePieces(Tokenizer):
    """Marian's tokenizer: sources and targets are cut by models of their own, ids are common."""

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
        return self._encoded(text, self._source)

    def encode_targets(self, texts: Sequence[str]) -> list[Ids]:
        return [self._encoded(text, self._target) for text in texts]

    def _stream_texts(self, chunks: Iterable[bytes]) -> Iterator[str]:
        # The library opens every text with a space, and looks for the code of a language there.
        yield decode(b"".join(chunks))

    def _encoded(self, text: str, model: Any) -> Ids:
        require_unicode(text)
        end = text.find(CLOSE) + len(CLOSE) if text.startswith(OPEN) else 0
        code, rest = (text[:end], text[end:]) if end >= len(CLOSE) else ("", text)
        pieces = [code] if code else []
        pieces += model.encode(rest, out_type=str)
        unknown = self.specials[UNKNOWN]
        return np.array([self._ids.get(piece, unknown) for piece in pieces], dtype=np.int32)

    def decode(self, ids: ArrayLike) -> str:
        """The text; special tokens are none of it."""
        special = set(self.specials.values())
        pieces = [self.vocabulary[i] for i in self.checked(ids).tolist() if i not in special]
        return str(self._target.decode_pieces(pieces)).replace(SPACE, " ").strip()

    def pieces(self, ids: ArrayLike) -> list[str]:
        return [self.vocabulary[i] for i in self.checked(ids).tolist()]

    def to_json(self) -> dict[str, Any]:
        source, target = (base64.b64encode(file).decode("ascii") for file in self.files)
        vocabulary = list(self.vocabulary)
        return {"kind": self.kind, "source": source, "target": target, "vocabulary": vocabulary}


def from_json(data: Mapping[str, Any]) -> SentencePieces:
    files = []
    for name in ("source", "target"):
        try:
            files.append(base64.b64decode(data.get(name, ""), validate=True))
        except (binascii.Error, TypeError, ValueError):
            raise ValueError(f"{name} is no file in base64") from None
    vocabulary = data.get("vocabulary")
    if not isinstance(vocabulary, list) or not all(isinstance(each, str) for each in vocabulary):
        raise ValueError(f"vocabulary is {vocabulary!r:.60}, but it must be a list of strings")
    return SentencePieces(files[0], files[1], vocabulary)


def learn(texts: Iterable[str], size: int | None) -> Tokenizer:
    raise ValueError(
        "a sentencepiece tokenizer comes with a checkpoint and is not learned here: use bpe"
    )


def _open(file: bytes, name: str) -> Any:
    try:
        verify(file)
    except ValueError as problem:
        raise ValueError(f"{name} is no sound SentencePiece model: {problem}") from None
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
        raise ValueError(f"{name} is no sound SentencePiece model: {reason:.120}") from None


# --- is the file sound ---------------------------------------------------------------------

Value = int | bytes
PIECE, NORMALIZERS = 1, (3, 5)  # fields of a model; 5 undoes what 3 does
TEXT, SCORE, TYPE = 1, 2, 3  # fields of a piece
CHARACTERS = 2  # of a normalizer: its table


def verify(file: bytes) -> None:
    """ValueError unless this is a model whose every part lies inside it."""
    if len(file) > LARGEST:
        raise ValueError(f"it has {len(file):,} bytes, but {LARGEST:,} are the most")
    pieces = unknown = 0
    for field, value in fields(file):
        if field == PIECE:
            pieces += 1
            unknown += _piece(_bytes(value)) == UNKNOWN_TYPE
        elif field in NORMALIZERS:
            for inner, table in fields(_bytes(value)):
                if inner == CHARACTERS and table:
                    _verify_table(_bytes(table))
    if not 1 <= pieces <= MOST_PIECES or unknown != 1:
        raise ValueError(f"it has {pieces:,} pieces, {unknown:,} of them for the unknown")


def _piece(message: bytes) -> int:
    """The type of a piece; ValueError unless it is a text with a finite score."""
    found: dict[int, Value] = dict(fields(message))
    try:
        text = _bytes(found.get(TEXT, b"")).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("a piece is no text in UTF-8") from None
    score = found.get(SCORE, bytes(4))
    if not text or not isinstance(score, bytes) or not math.isfinite(_float(score)):
        raise ValueError(f"the piece {text!r:.40} is empty or has no score")
    kind = found.get(TYPE, 1)
    if not isinstance(kind, int) or not 1 <= kind <= 6:
        raise ValueError(f"the piece {text!r:.40} is of type {kind!r:.20}")
    return kind


def _verify_table(table: bytes) -> None:
    """A trie in one array, then the texts that its leaves point to.

    From the unit at place i a byte c leads to the place i ^ offset ^ c, and with c = 0 to a leaf.
    """
    size = int.from_bytes(table[:4], "little")
    if len(table) < 4 or size % 1024 or not 0 < size <= len(table) - 4:
        raise ValueError("its table of characters has no sound size")
    units = np.frombuffer(table, dtype="<u4", count=size // 4, offset=4).astype(np.int64)
    texts = table[4 + size :]
    inner = units >> 31 == 0  # the others are leaves
    offset = (units >> 10) << ((units & 512) >> 6)
    place = np.arange(len(units)) ^ offset
    if (place | 255)[inner].max(initial=0) >= len(units):
        raise ValueError("its table of characters points outside of itself")
    leaves = units[place[inner & (units >> 8 & 1 == 1)]] & 0x7FFFFFFF
    if leaves.max(initial=0) >= len(texts) or texts[-1:] != b"\0":
        raise ValueError("its table of characters points behind its texts")


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Number and value of each field of a protocol buffer, to the last byte."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value: Value
            value, place = _varint(message, place)
        else:
            if kind == 2:
                length, place = _varint(message, place)
            else:
                length = {1: 8, 5: 4}.get(kind, len(message) + 1)
            value = message[place : place + length]
            place += length
        if place > len(message) or number == 0:
            raise ValueError("it was cut, or is something else")
        yield number, value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if place >= len(message) or shift > 63:
            raise ValueError("it was cut, or is something else")
        byte = message[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("it has a number where a text should be")
    return value


def _float(value: bytes) -> float:
    if len(value) != 4:
        raise ValueError("a score is no number")
    return float(struct.unpack("<f", value)[0])
