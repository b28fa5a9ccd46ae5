import dataclasses
import json
import math
import zlib

import pytest

from clearformer.compressor import container
from clearformer.compressor.container import Header, body_hash, min_token_bits, pack, unpack


def header(**changes):
    table, code = b"table", b"code of a text"
    fields = {
        "model": "0" * 32, "tokenizer": "1" * 32, "name": "runs/mine", "seed": None,
        "protocol": {"context": 12, "stride": 6}, "streams": 4, "online": None, "dtype": "float32",
        "threads": 2, "torch": "2", "coder": "c", "cpu": "x86", "probe": "2" * 16, "tokens": 9,
        "length": 9, "sha256": "3" * 64, "table": len(table), "body": body_hash(table, code),
    }  # fmt: skip
    return Header(**{**fields, **changes}), table, code


def test_pack_unpack_round_trip():
    parts = header(name="a ä \x1b", online={"learning_rate": 0.1})
    assert unpack(pack(*parts), "f") == parts


def test_header_is_small():
    packed = pack(*header())
    hashes = 32 + 3 * 16  # bytes that cannot be compressed, had they been real ones
    assert len(packed) - len("tablecode of a text") + hashes < 250


@pytest.mark.parametrize("place", range(0, 120, 3))
def test_detects_flipped_bit(place):
    packed = bytearray(pack(*header()))
    packed[place % len(packed)] ^= 1 << place % 8
    with pytest.raises(ValueError, match=r"f is (damaged|not a file)"):
        unpack(bytes(packed), "f")


def test_rejects_truncated_or_extended_file():
    packed = pack(*header())
    for wrong in (*(packed[:end] for end in range(len(packed))), packed + b"\0"):
        with pytest.raises(ValueError, match=r"f is (damaged|not a file)"):
            unpack(wrong, "f")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("streams", 0), ("streams", 10**6), ("streams", True), ("tokens", -1), ("length", 1.5),
        ("model", "x" * 32), ("sha256", "3" * 63), ("seed", "0"), ("protocol", [1]),
        ("protocol", {"context": -1}), ("online", 3), ("name", None), ("threads", 10**4),
    ],
)  # fmt: skip
def test_rejects_invalid_header_values(field, value):
    packed = pack(*header(**{field: value}))
    with pytest.raises(ValueError, match=rf"^f has an invalid header: {field} is "):
        unpack(packed, "f")


def sealed(text):
    """A file with a right hash around a header of any text."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=container.DICTIONARY)
    packed = squeezer.compress(text) + squeezer.flush()
    front = container.MAGIC + len(packed).to_bytes(2, "big") + packed
    return front + container.hashlib.sha256(front).digest()[: container.HASH_BYTES]


def test_rejects_invalid_headers_with_valid_hash():
    fields = dataclasses.asdict(header()[0])
    for text in (
        b"[]",
        b"{",
        b"\xff",
        json.dumps({**fields, "more": 1}).encode(),
        json.dumps({k: v for k, v in fields.items() if k != "cpu"}).encode(),
        b"[" * 10_000,
        b" " * 10**6,  # unpacks to far more than it has
    ):
        with pytest.raises(ValueError, match=r"^f has an invalid header: "):
            unpack(sealed(text), "f")


def test_min_token_bits_is_positive():
    assert min_token_bits(256) == pytest.approx(255 / 2**24 / math.log(2), rel=1e-4)
