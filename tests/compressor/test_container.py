import dataclasses
import math

import pytest

from clearformer.compressor import container
from clearformer.compressor.container import Header, Machine, min_token_bits, pack, unpack
from clearformer.compressor.online import Online

MACHINE = Machine(2, "2.13.0+cpu", "x86_64 AuthenticAMD 26/2/1 AVX512 sse4_2 avx avx2 fma")


def header(**changes):
    table, code = b"table", b"code of a text"
    fields = {
        "model": "01" * 8, "tokenizer": "12" * 4, "name": "runs/mine", "seed": None,
        "protocol": {"context": 256, "stride": 128}, "streams": 32, "online": None, "counts": 0,
        "dtype": "float32", "machine": MACHINE, "coder": "constriction 0.5.0", "probe": "23" * 4,
        "tokens": 500_000, "length": 2_000_000, "sha256": "3f" * 12, "table": len(table),
    }  # fmt: skip
    return Header(**{**fields, **changes}), table, code


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "a ä \x1b \udc80", "seed": 2**40},
        {
            "online": Online.from_scratch().to_json(),
            "counts": 6,
        },
        {"protocol": {"segment": 64, "memory": 0}, "dtype": "bfloat16", "tokens": 2_000_000},
        {"machine": None, "coder": "another 1", "tokens": 0, "length": 0},
        {"machine": Machine(1, "2.14.0a0+git", "riscv64 ? ?/?/? DEFAULT")},
        {"machine": Machine(1, "2.13.0", "")},
    ],
)
def test_pack_and_unpack_round_trip(changes):
    parts = header(**changes)
    assert unpack(pack(*parts), "f") == parts


def test_header_is_at_most_66_bytes():
    front = len(pack(*header(name=""))) - len("tablecode of a text")
    assert front <= 66  # of which 63 if each byte is a token, with no table
    assert len(pack(*header(name="", tokens=2_000_000))) - len("tablecode of a text") <= 64


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


def test_rejects_format_1_by_name():
    with pytest.raises(ValueError, match="before its first release"):
        unpack(b"CLFZ\x01" + bytes(100), "f")


@pytest.mark.parametrize(
    ("field", "value"),
    [("streams", 0), ("streams", 10**6), ("tokens", 2**50), ("length", 2**49), ("table", 2**41)],
)
def test_rejects_values_out_of_range(field, value):
    packed = pack(*header(**{field: value}))
    with pytest.raises(ValueError, match=rf"^f has an invalid header: {field} is "):
        unpack(packed, "f")


def test_rejects_too_many_threads():
    machine = dataclasses.replace(MACHINE, threads=10**4)
    with pytest.raises(ValueError, match="invalid header: threads is 10000"):
        unpack(pack(*header(machine=machine)), "f")


def sealed(rest):
    return container.MAGIC + container._check(rest) + rest


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\x80" * 100,  # a flag of a later version
        b"\0" + bytes(24),  # ends within the hashes
        b"\0" + bytes(28) + b"\xff" * 20,  # an integer without end
        b"\0" + bytes(28) + b"\1\1\1\1\1\0" + b"\xfe",  # a version of an unknown form
    ],
)
def test_rejects_malformed_headers_with_valid_hash(rest):
    with pytest.raises(ValueError, match=r"^f has an invalid header: "):
        unpack(sealed(rest), "f")


def test_min_token_bits_is_positive():
    assert min_token_bits(256) == pytest.approx(255 / 2**24 / math.log(2), rel=1e-4)
