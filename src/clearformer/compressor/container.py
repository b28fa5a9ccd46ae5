"""The `.cf` file: a hashed header, the page table and the code.

    magic (5 bytes) | length of the header (2) | header: deflated JSON | hash of all before (8)
    | page table | code

The header names everything that the probabilities depend on, so that a decoder that would compute
others refuses the file before it decodes. A file is untrusted: the hashes find damage, and the
limits bound what a header may ask for.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

MAGIC = b"CLFZ\x01"
MAX_HEADER_BYTES = 2**14  # of the JSON; the length field allows no more than 2^16 deflated ones
MAX_STREAMS = 4096
HASH_BYTES = 8
IDENTITY = 32  # hex digits of a model's or tokenizer's hash
# Common strings of a header: deflate refers to them instead of storing them.
DICTIONARY = (
    b'"avx avx2 avx512_bf16 avx512_vnni avx512bw avx512dq avx512f avx512vl fma sse4_2 AuthenticAMD '
    b'GenuineIntel aarch64 x86_64 AVX512 AVX2 float32 int8","torch":"2.13.0+cpu","coder":'
    b'"constriction 0.5.0","threads":2,"dtype":"float32","cpu":"x86_64 AuthenticAMD AVX512","probe"'
    b':"","online":null,"seed":null,"table":0,"tokens":,"length":,"protocol":{"context":256,'
    b'"stride":128},"protocol":{"segment":,"memory":},"streams":32,"body":"","sha256":"","model":"'
    b'","tokenizer":"","name":"runs/'
)


@dataclass(frozen=True, kw_only=True)
class Header:
    """Settings for the decoder, and what must be the same as when the file was written."""

    model: str
    """Hash of the weights and the config."""
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
    dtype: str
    threads: int
    torch: str
    coder: str
    cpu: str
    probe: str
    """Hash of the probabilities of some fixed tokens."""
    tokens: int
    length: int
    """Bytes of the original."""
    sha256: str
    """Of the original."""
    table: int
    """Bytes of the page table."""
    body: str
    """Hash of page table and code."""


def pack(header: Header, table: bytes, code: bytes) -> bytes:
    """The bytes of a file."""
    text = json.dumps(asdict(header), separators=(",", ":")).encode("ascii")
    if len(text) > MAX_HEADER_BYTES:
        raise ValueError(f"the header has {len(text):,} bytes, but {MAX_HEADER_BYTES:,} are most")
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=DICTIONARY)
    packed = squeezer.compress(text) + squeezer.flush()
    front = MAGIC + len(packed).to_bytes(2, "big") + packed
    return front + hashlib.sha256(front).digest()[:HASH_BYTES] + table + code


def unpack(data: bytes, name: str) -> tuple[Header, bytes, bytes]:
    """Header, page table and code of a file; ValueError if it is damaged."""
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError(
            f"{name} is not a file of clearformer compress, or its first bytes are damaged"
        )
    start = len(MAGIC) + 2
    end = start + int.from_bytes(data[len(MAGIC) : start], "big")
    if hashlib.sha256(data[:end]).digest()[:HASH_BYTES] != data[end : end + HASH_BYTES]:
        raise ValueError(f"{name} is damaged: its header does not match its hash; get it again")
    header = _header(data[start:end], name)
    body = memoryview(data)[end + HASH_BYTES :]
    if body_hash(body) != header.body:
        raise ValueError(
            f"{name} is damaged: its code does not match the hash in its header; get it again"
        )
    return header, bytes(body[: header.table]), bytes(body[header.table :])


def body_hash(*parts: bytes | memoryview) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[: 2 * HASH_BYTES]


def min_token_bits(vocabulary: int, precision: int = 24) -> float:
    """Bits that even the most likely token costs, because no other has a frequency of 0."""
    return -math.log2(1 - (vocabulary - 1) / 2**precision)


def _header(packed: bytes, name: str) -> Header:
    opener = zlib.decompressobj(-15, zdict=DICTIONARY)
    try:
        text = opener.decompress(packed, MAX_HEADER_BYTES)
        found = json.loads(text)
        if opener.unconsumed_tail:
            raise ValueError(f"it has more than {MAX_HEADER_BYTES:,} bytes")
        if not isinstance(found, dict) or set(found) != {each.name for each in fields(Header)}:
            raise ValueError("it has other fields than this version of clearformer knows")
        for key, check in CHECKS.items():
            if not check(found[key]):
                raise ValueError(f"{key} is {found[key]!r:.60}")
    except (ValueError, RecursionError, zlib.error) as problem:
        raise ValueError(f"{name} has an invalid header: {problem}") from None
    return Header(**found)


def _is_hash(digits: int) -> Any:
    return lambda x: (
        isinstance(x, str) and len(x) == digits and not set(x) - set("0123456789abcdef")
    )


def _is_count(least: int, most: int) -> Any:
    return lambda x: type(x) is int and least <= x <= most


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 4096


def _is_protocol(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_count(0, 2**24)(each) for each in value.values())


def _is_online(value: Any) -> bool:
    return value is None or isinstance(value, dict)


CHECKS: Mapping[str, Any] = {
    "model": _is_hash(IDENTITY),
    "tokenizer": _is_hash(IDENTITY),
    "sha256": _is_hash(64),
    "body": _is_hash(2 * HASH_BYTES),
    "probe": _is_hash(2 * HASH_BYTES),
    "seed": lambda x: x is None or _is_count(0, 2**63)(x),
    "protocol": _is_protocol,
    "online": _is_online,
    "streams": _is_count(1, MAX_STREAMS),
    "threads": _is_count(1, 1024),
    "tokens": _is_count(0, 2**44),
    "length": _is_count(0, 2**48),
    "table": _is_count(0, 2**40),
    **dict.fromkeys(("name", "dtype", "torch", "coder", "cpu"), _is_name),
}
