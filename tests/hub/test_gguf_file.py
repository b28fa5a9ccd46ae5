"""GGUF files: read as the gguf library reads them, and damaged or forged ones refused."""

import random
import struct

import gguf
import numpy as np
import pytest

from clearformer import limits
from clearformer.hub.gguf_file import BLOCKS, GGUFFile


def text(content):
    content = content if isinstance(content, bytes) else content.encode()
    return struct.pack("<Q", len(content)) + content


def pair(key, kind, payload):
    return text(key) + struct.pack("<I", kind) + payload


def info(name, shape, kind, offset):
    sizes = b"".join(struct.pack("<Q", size) for size in reversed(shape))
    return text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", kind, offset)


def file_of(keys=(), tensors=(), data=b"\0" * 256, version=3, counts=None, magic=b"GGUF"):
    counts = (len(tensors), len(keys)) if counts is None else counts
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + data


@pytest.fixture
def opened(tmp_path):
    def read(content):
        path = tmp_path / "m.gguf"
        path.write_bytes(content)
        return GGUFFile(path)

    return read


def test_reads_what_the_library_writes(tmp_path):
    draw = np.random.default_rng(0)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_uint32("a.number", 7)
    writer.add_float32("a.small", 1e-6)
    writer.add_bool("a.truth", True)
    writer.add_string("a.text", "ä")
    writer.add_array("a.texts", ["x", "yy"])
    writer.add_array("a.numbers", [1, 2, 3])
    kinds = [*BLOCKS[:5], "F32", "F16", "BF16"]
    matrices = {name: draw.normal(size=(3, 64)).astype(np.float32) for name in kinds}
    for name, matrix in matrices.items():
        kind = gguf.GGMLQuantizationType[name]
        writer.add_tensor(name, gguf.quantize(matrix, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(tmp_path / "m.gguf")
    assert file.metadata == {
        "general.architecture": "llama", "a.number": 7, "a.small": 1e-6, "a.truth": True,
        "a.text": "ä", "a.texts": ["x", "yy"], "a.numbers": [1, 2, 3],
    }  # fmt: skip
    assert file.kinds() == sorted(BLOCKS[:5])
    for each in gguf.GGUFReader(tmp_path / "m.gguf").tensors:
        expected = gguf.dequantize(each.data, each.tensor_type)
        assert file.shape(each.name) == (3, 64)
        assert np.array_equal(file.tensor(each.name).float().numpy(), expected)
        file.release(each.name)
        assert np.abs(expected - matrices[each.name]).max() < 0.3


ARRAY = struct.pack("<IQ", 4, 2**60)
FORGED = {
    "no header": (b"GGUF", "it is shorter than a header"),
    "another magic": (file_of(magic=b"GGML"), "it does not begin with GGUF"),
    "version 1": (file_of(version=1), "it has version 1, but clearformer reads the versions 2"),
    "big-endian": (file_of(version=3 << 24), "it has version 50331648"),
    "many tensors": (file_of(counts=(2**62, 0)), r"tensors, but at most 100,000 .*TENSORS"),
    "many keys": (file_of(counts=(0, 2**62)), r"keys, but at most 10,000 are allowed"),
    "key cut off": (file_of(counts=(0, 5), data=b""), "its header needs 4 bytes"),
    "long key": (
        file_of([struct.pack("<Q", 2**63)]),
        "its header needs 9,223,372,036,854,775,808 bytes",
    ),
    "long array": (file_of([pair("a", 9, ARRAY)]), r"a has 1,152,.* items, but at most"),
    "array of arrays": (file_of([pair("a", 9, struct.pack("<IQ", 9, 1))]), "an array of arrays"),
    "array type": (file_of([pair("a", 9, struct.pack("<IQ", 99, 1))]), "items of the unknown type"),
    "type": (file_of([pair("a", 99, b"")]), "a has the unknown type 99"),
    "truth": (file_of([pair("a", 7, b"\2")]), "a is 2, but it must be true or false"),
    "not UTF-8": (file_of([pair("a", 8, text(b"\xff"))]), "a is not UTF-8 text"),
    "key not UTF-8": (file_of([pair(b"\xff", 7, b"\1")]), "a key is not UTF-8 text"),
    "two keys": (file_of([pair("a", 7, b"\1")] * 2), "it has the key a twice"),
    "alignment": (
        file_of([pair("general.alignment", 4, struct.pack("<I", 3))]),
        "general.alignment is 3, but it must be a power of two",
    ),
    "two tensors": (
        file_of(tensors=[info("x", (2,), 0, 0), info("x", (2,), 0, 32)]),
        "it has the tensor x twice",
    ),
    "shared bytes": (
        file_of(tensors=[info("x", (32,), 0, 0), info("y", (2,), 0, 32)]),
        "x and y share bytes",
    ),
    "no axes": (file_of(tensors=[info("x", (), 0, 0)]), "x has 0 axes, but 1 to 4"),
    "axes": (file_of(tensors=[info("x", (1,) * 5, 0, 0)]), "x has 5 axes, but 1 to 4"),
    "no numbers": (file_of(tensors=[info("x", (0,), 0, 0)]), "which is not possible"),
    "huge": (file_of(tensors=[info("x", (2**40,) * 4, 0, 0)]), "x ends at byte .* cut off"),
    "offset": (file_of(tensors=[info("x", (2,), 0, 2**62)]), "x ends at byte .* cut off or forged"),
    "not aligned": (file_of(tensors=[info("x", (2,), 0, 4)]), "x is at 4, which is not aligned"),
    "quantization": (file_of(tensors=[info("x", (256,), 19, 0)]), "x has the type IQ1_S, which"),
    "unknown type": (file_of(tensors=[info("x", (2,), 77, 0)]), "x has the type 77, which"),
    "integers": (file_of(tensors=[info("x", (2,), 26, 0)]), "x has the type I32, which"),
    "blocks": (file_of(tensors=[info("x", (33,), 8, 0)]), "but Q8_0 stores blocks of 32"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_refuses_forged_file(opened, name):
    content, sentence = FORGED[name]
    with pytest.raises(ValueError, match=rf"m\.gguf is not a valid GGUF file: .*{sentence}"):
        opened(content)


def test_header_has_a_limit(opened, monkeypatch):
    content = file_of([pair("a", 8, text("x" * 300))])
    assert opened(content).metadata == {"a": "x" * 300}
    monkeypatch.setattr(limits, "MAX_GGUF_HEADER_BYTES", 200)
    with pytest.raises(ValueError, match=r"the limit is 200 \(MAX_GGUF_HEADER_BYTES\)"):
        opened(content)


def test_refuses_what_is_no_file(tmp_path):
    with pytest.raises(ValueError, match="it is not a file"):
        GGUFFile(tmp_path)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        GGUFFile(tmp_path / "none.gguf")


def test_truncated_files_are_refused(opened):
    content = file_of(
        [pair("a", 8, text("words")), pair("b", 9, struct.pack("<IQ", 8, 2) + text("x") * 2)],
        [info("x", (2, 32), 8, 0)],
        b"\1" * 68,
    )
    assert opened(content).tensor("x").shape == (2, 32)
    for size in range(0, len(content) - 1, 3):
        with pytest.raises(ValueError, match=r"is not a valid GGUF file|cannot be read"):
            opened(content[:size])


def test_damaged_scales_are_numbers_or_not_finite(opened):
    block = struct.pack("<H", 0x7C01) + b"\1" * 32  # a scale that is NaN
    file = opened(file_of(tensors=[info("x", (32,), 8, 0)], data=block))
    assert file.tensor("x").isnan().all()


def test_damaged_bytes_are_refused_or_read(opened):
    chance = random.Random(0)
    content = file_of(
        [pair("a", 8, text("words")), pair("b", 9, struct.pack("<IQ", 6, 2) + b"\0" * 8)],
        [info("x", (2, 32), 8, 0), info("y", (8,), 0, 96)],
        b"\1" * 128,
    )
    refused = 0
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(chance.choice((1, 1, 4))):
            damaged[chance.randrange(190)] = chance.randrange(256)
        try:
            file = opened(bytes(damaged))
            assert all(file.tensor(name).numel() <= 64 for name in file.names())
        except ValueError as problem:
            assert "\n" not in str(problem)  # noqa: PT017
            refused += 1
    assert refused > 100
