import dataclasses
import random
import re

import pytest
import torch

from clearformer.compressor import container
from clearformer.compressor.codec import compress, decompress
from clearformer.compressor.online import Online
from clearformer.compressor.protocols import Windows
from clearformer.model import Model
from clearformer.text import BytePairs, Bytes, Words

FAMILIES = ["modern", "gpt2", "sparse", "generator", "xl"]


def repacked(packed, machine=(), **changes):
    """The same file with another header and a right hash."""
    header, table, code = container.unpack(packed.data, "f")
    changes["machine"] = dataclasses.replace(header.machine, **dict(machine))
    return container.pack(dataclasses.replace(header, **changes), table, code)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("streams", [1, 4])
def test_round_trip(byte_model, text, family, streams):
    model = byte_model(family)
    packed = compress(text[:130], model, streams=streams)
    assert decompress(packed.data, model) == text[:130]
    assert packed.header.streams == streams


@pytest.mark.parametrize("family", ["modern", "xl"])
def test_round_trip_with_online_learning(byte_model, text, family):
    model = byte_model(family)
    packed = compress(text[:200], model, streams=3, online=True)
    assert decompress(packed.data, model) == text[:200]
    assert packed.data != compress(text[:200], model, streams=3).data


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_round_trip_with_other_dtypes(byte_model, text, dtype):
    model = byte_model().to("cpu", dtype)
    packed = compress(text[:60], model)
    assert decompress(packed.data, model) == text[:60]
    assert packed.header.dtype == str(dtype).removeprefix("torch.")


def test_round_trip_with_int8(byte_model, text):
    packed = compress(text[:100], byte_model().quantize())
    assert decompress(packed.data, byte_model().quantize()) == text[:100]
    with pytest.raises(ValueError, match="compressed with another model"):
        decompress(packed.data, byte_model())


def test_round_trip_of_any_bytes(byte_model):
    model = byte_model()
    for data in (b"", b"\0", b"\xff\xfe", b"ab", random.Random(0).randbytes(300), b"a" * 300):
        assert decompress(compress(data, model).data, model) == data


def test_round_trip_with_lossy_tokenizers(byte_model, prose, text):
    for tokenizer in (BytePairs.train([prose], 280), Words.train([prose], 100)):
        model = byte_model(tokenizer=tokenizer)
        for data in (text, b"", b"\xff" * 3, text + b"\xff\n" + text):
            packed = compress(data, model)
            assert decompress(packed.data, model) == data
    assert packed.raw_size > 0


def test_output_does_not_depend_on_earlier_work(byte_model, text):
    model = byte_model()
    first = compress(text, model, streams=3)
    compress(text[:99], model, streams=7)
    model.generate("some text", max_tokens=20)
    model.module.train()
    torch.set_flush_denormal(False)
    assert compress(text, model, streams=3).data == first.data
    assert model.module.training


def test_uses_threads_of_header(byte_model, text):
    model = byte_model()
    packed = compress(text[:100], model, threads=2)
    assert packed.header.machine.threads == 2
    assert torch.get_num_threads() == 1
    assert decompress(packed.data, model) == text[:100]
    assert torch.get_num_threads() == 1


def test_from_scratch_needs_no_weights(text):
    packed = compress(text[:60], "modern-tiny", from_scratch=True, online=True, seed=5, context=16)
    assert decompress(packed.data) == text[:60]


def test_round_trip_of_files_with_named_model(byte_model, text, tmp_path):
    byte_model().save(tmp_path / "run")
    (tmp_path / "a.txt").write_bytes(text)
    compress(tmp_path / "a.txt", tmp_path / "run", out=tmp_path / "a.cf")
    assert decompress(tmp_path / "a.cf", out=tmp_path / "b.txt") is None
    assert (tmp_path / "b.txt").read_bytes() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cf", "a.txt", "b.txt", "run"]


def test_damaged_files_are_rejected_and_write_nothing(byte_model, text, tmp_path):
    model, chance = byte_model(), random.Random(0)
    data = compress(text, model).data
    for number in range(300):
        wrong = bytearray(data)
        place = chance.randrange(len(data))
        match number % 4:
            case 0:
                wrong[place] ^= 1 << chance.randrange(8)
            case 1:
                del wrong[place:]
            case 2:
                wrong[place : place + 8] = chance.randbytes(8)
            case 3:
                wrong.insert(place, chance.randrange(256))
        with pytest.raises(ValueError, match=r"is damaged|is not a file of clearformer compress"):
            decompress(bytes(wrong), model, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "0" * 16}, "it was compressed with another model"),
        ({"tokenizer": "0" * 8}, "it was compressed with another tokenizer"),
        ({"machine": {"torch": "1.0"}}, r"written with torch 1\.0, but here it is 2"),
        ({"machine": {"cpu": "m68k"}}, "written with cpu m68k, but here it is "),
        ({"coder": "other 1"}, "written with coder other 1, but here it is constriction"),
        ({"dtype": "float16"}, "written with dtype float16, but here it is float32"),
        ({"probe": "0" * 8}, "this machine computes other probabilities"),
        ({"streams": 2}, "this machine computes other probabilities"),
        ({"tokens": 10**12}, "its code is too short for its tokens"),
        ({"tokens": 599}, "does not decode to the text that was compressed"),
        ({"length": 3}, "does not decode to the text that was compressed"),
        ({"sha256": "0" * 24}, "does not decode to the text that was compressed"),
        ({"protocol": {"context": 3, "stride": 4}}, "unknown protocol"),
        ({"protocol": {"context": 2**24, "stride": 1}}, "tokens are the most"),
        (
            {"online": {**Online().to_json(), "learning_rate": 9.0}},
            "`learning_rate` is 9.0, but it must be above 0",
        ),
    ],
)
def test_rejects_headers_of_other_machine(byte_model, text, tmp_path, changes, sentence):
    wrong = repacked(compress(text, byte_model(), streams=1), **changes)
    with pytest.raises(ValueError, match=sentence):
        decompress(wrong, byte_model(), out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_rejects_machine_that_only_reads_windows_again_differently(byte_model, text, monkeypatch):
    """It computes single steps alike, but not the beginning of a window, which is read at once."""
    model, reread = byte_model(), Windows.reread
    short, long = compress(text[:12], model).data, compress(text, model).data
    monkeypatch.setattr(Windows, "reread", lambda *given: reread(*given) * 1.001)
    with pytest.raises(ValueError, match="this machine computes other probabilities"):
        decompress(long, model)
    assert decompress(short, model) == text[:12]  # of a single window, so nothing is read again


def test_rejects_other_model_and_tokenizer(byte_model, text, prose):
    packed = compress(text, byte_model())
    with pytest.raises(ValueError, match="compressed with another model"):
        decompress(packed.data, byte_model(seed=2))
    other = byte_model(tokenizer=BytePairs.train([prose], 256))
    with pytest.raises(ValueError, match="compressed with another tokenizer"):
        decompress(packed.data, other)


def test_rejects_code_of_other_file(byte_model, text):
    """All hashes are valid, so that only the decoded text reveals it."""
    model = byte_model()
    header, _, _ = container.unpack(compress(text, model).data, "f")
    _, table, code = container.unpack(compress(text[::-1], model).data, "f")
    with pytest.raises(ValueError, match=r"does not decode|does not belong"):
        decompress(container.pack(header, table, code), model)


def test_interrupted_decoder_writes_nothing(byte_model, text, tmp_path):
    model = byte_model()
    packed = compress(text, model)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decompress(packed.data, model, out=tmp_path / "out", progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        compress(text, model, out=tmp_path / "out", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_file_size_is_close_to_entropy(byte_model, text):
    """The rest is a header of 64 bytes at most, and the name of the model."""
    packed = compress(text, byte_model(), streams=1)
    assert packed.size - packed.code_size <= 64 + len(packed.header.name)
    assert packed.bits_per_byte == 8 * packed.size / len(text)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"streams": 0}, "`streams` is 0, but it must be from 1 to 4,096"),
        ({"threads": 0}, "`threads` is 0, but it must be from 1 to 1,024"),
        ({"portable": True, "online": True}, "`portable` and `online` do not go together"),
        ({"from_scratch": True}, "`from_scratch` needs `online`"),
        ({"stream": 1}, "compress has no parameter 'stream': did you mean 'streams'"),
        ({"streams": 4000, "context": 1000}, re.escape("4,000 streams of 1,000 tokens are")),
    ],
)
def test_rejects_invalid_options(byte_model, text, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        compress(text, byte_model(), **options)


def test_rejects_models_that_cannot_compress(byte_model, small, text):
    model = byte_model()
    with pytest.raises(ValueError, match="has no tokenizer, so it cannot read a file"):
        compress(text, Model(model.module, model.config))
    smaller = byte_model(tokenizer=Words(["a", "b"]))
    with pytest.raises(ValueError, match="the tokenizer has 256 ids, but modern-small predicts 4"):
        compress(text, Model(smaller.module, smaller.config, Bytes()))
    with torch.no_grad():
        next(model.module.parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="NaN or infinite"):
        compress(text, model)


def test_rejects_folder(byte_model, tmp_path):
    with pytest.raises(ValueError, match="is not a regular file"):
        compress(tmp_path, byte_model())
