"""The `.cf` file: a packed header, the page table and the code.

    magic (4 bytes) | hash of all that follows (4) | header | page table | code

The header names everything that the probabilities depend on, so that a decoder that would compute
others refuses the file before it decodes. It is packed into about 60 bytes and the name of the
model: integers of variable length, the beginnings of hashes, and words from a table (`packing`).
A file is untrusted: the hashes find damage, and the limits bound what a header may ask for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clearformer.compressor.packing import Reader, Writer

Buffer = bytes | memoryview
MAGIC = b"CLZ\x02"
OLD_MAGIC = b"CLFZ\x01"  # of versions before the first release
MAX_STREAMS = 4096
CHECK = 4  # bytes of the hash of a file
IDENTITY, SHORT, TEXT = 16, 8, 24  # hex digits: of a model; of a tokenizer and a probe; of a text
DTYPES = ("float32", "float64", "bfloat16", "float16")
PROTOCOLS = (("context", "stride"), ("segment", "memory"))


@dataclass(frozen=True, kw_only=True)
class Header:
    """Settings for the decoder, and what must be the same as when the file was written."""

    model: str
    """Beginning of the hash of the weights and the config."""
    tokenizer: str
    name: str
    """Path or preset of the model, as a hint."""
    seed: int | None
    """The seed of a preset's initial weights; None: the weights come with the model."""
    protocol: Mapping[str, int]
    """Which tokens a prediction may use."""
    streams: int
    """Parts of the text that are coded side by side."""
    online: Mapping[str, Any] | None
    """How the model is trained while it codes."""
    counts: int
    """The longest context of the counts that are mixed with the model; 0: no counts."""
    dtype: str
    machine: Machine | None
    """Versions and CPU; None: portable arithmetic, which does not depend on them."""
    coder: str
    probe: str
    """Beginning of the hash of the probabilities of some fixed tokens."""
    tokens: int
    length: int
    """Bytes of the original."""
    sha256: str
    """The first 24 digits, of the original."""
    table: int
    """Bytes of the page table."""


@dataclass(frozen=True)
class Machine:
    """What floating-point sums depend on, besides the model."""

    threads: int
    torch: str
    cpu: str


def pack(header: Header, table: Buffer, code: Buffer) -> bytes:
    """The bytes of a file."""
    rest = (_packed(header), table, code)
    return b"".join((MAGIC, _check(*rest), *rest))


def unpack(data: bytes, name: str) -> tuple[Header, memoryview, memoryview]:
    """Header, page table and code of a file; ValueError if it is damaged."""
    if data[: len(OLD_MAGIC)] == OLD_MAGIC:
        raise ValueError(
            f"{name} was written by a version of clearformer before its first release, whose "
            f"format is no longer read: decompress it with that version"
        )
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError(
            f"{name} is not a file of clearformer compress, or its first bytes are damaged"
        )
    start = len(MAGIC) + CHECK
    rest = memoryview(data)[start:]
    if _check(rest) != data[len(MAGIC) : start]:
        raise ValueError(f"{name} is damaged: it does not match the hash in it; get it again")
    reader = Reader(data, start)
    try:
        header = _unpacked(reader)
    except ValueError as problem:
        raise ValueError(f"{name} has an invalid header: {problem}") from None
    body = memoryview(data)[reader.place :]
    return header, body[: header.table], body[header.table :]


def min_token_bits(vocabulary: int, precision: int = 24) -> float:
    """Bits that even the most likely token costs, because no other has a frequency of 0."""
    return -math.log2(1 - (vocabulary - 1) / 2**precision)


def _check(*parts: Buffer) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()[:CHECK]


def _packed(header: Header) -> bytes:
    w = Writer()
    names = tuple(header.protocol)
    w.bits(
        (DTYPES.index(header.dtype), 2),
        (PROTOCOLS.index(names), 1),
        (header.seed is not None, 1),
        (header.online is not None, 1),
        (header.machine is None, 1),
        (header.tokens == header.length, 1),
        (header.counts > 0, 1),
    )
    w.hash(header.model).hash(header.tokenizer).hash(header.probe).hash(header.sha256)
    w.number(header.streams).numbers(header.protocol.values()).number(header.length)
    if header.tokens != header.length:
        w.number(header.tokens)
    w.number(header.table).version(header.coder)
    if header.machine is not None:
        w.number(header.machine.threads).version(header.machine.torch).words(header.machine.cpu)
    if header.seed is not None:
        w.number(header.seed)
    if header.online is not None:
        w.settings(header.online)
    if header.counts:
        w.number(header.counts)
    w.text(header.name)
    return w.data


def _unpacked(r: Reader) -> Header:
    dtype, kind, seeded, learns, portable, same, counted = r.bits(2, 1, 1, 1, 1, 1, 1)
    model, tokenizer, probe, sha256 = map(r.hash, (IDENTITY, SHORT, SHORT, TEXT))
    streams = r.number("streams", 1, MAX_STREAMS)
    protocol = {key: r.number(key, 0, 2**24) for key in PROTOCOLS[kind]}
    length = r.number("length", 0, 2**48)
    tokens = length if same else r.number("tokens", 0, 2**44)
    table = r.number("table", 0, 2**40)
    coder = r.version()
    machine = None
    if not portable:
        machine = Machine(r.number("threads", 1, 1024), r.version(), r.words())
    return Header(
        model=model,
        tokenizer=tokenizer,
        probe=probe,
        sha256=sha256,
        streams=streams,
        protocol=protocol,
        length=length,
        tokens=tokens,
        table=table,
        coder=coder,
        machine=machine,
        dtype=DTYPES[dtype],
        seed=r.number("seed", 0, 2**63) if seeded else None,
        online=r.settings() if learns else None,
        counts=r.number("counts", 1, 255) if counted else 0,
        name=r.text(4096),
    )
