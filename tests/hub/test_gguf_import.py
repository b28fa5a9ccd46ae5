"""GGUF files by every door: load, import, the commands; and damaged ones refused."""

import random

import gguf
import numpy as np
import pytest
import torch

import clearformer as cf
from clearformer.builder import build
from clearformer.config import GenerationDefaults
from clearformer.hub.gguf_export import to_gguf
from clearformer.hub.gguf_import import import_gguf, read_gguf_config
from clearformer.hub.importing import import_checkpoint, read_model_config
from clearformer.text import BytePairs, Bytes

SIZES = {"vocabulary": 256, "width": 32, "hidden": 64, "heads": 4, "key_heads": 2}


@pytest.fixture
def written(small, scrambled, tmp_path):
    config = small("modern", **SIZES, query_key_norm=None)
    torch.manual_seed(0)
    model = scrambled(build(config)).eval()
    path = tmp_path / "m.gguf"
    to_gguf(model, config, GenerationDefaults(), Bytes(), path, "q8_0")
    return path


def test_front_door_opens_it(written):
    model = cf.load(written)
    assert model.config.name == "modern-m"
    assert "quantized weights (Q8_0) are now float32" in model.notes
    assert model.generate("ab", max_tokens=5, temperature=0)
    assert read_model_config(written) == read_gguf_config(written) == model.config


def test_commands_open_it(clearformer, written, tmp_path):
    done = clearformer("generate", str(written), "ab", "--max-tokens", "5")
    assert done.code == 0, done.err
    done = clearformer("import", str(written), "--out", str(tmp_path / "run"))
    assert done.code == 0, done.err
    assert "head NextToken" in done.out
    again = str(tmp_path / "again.gguf")
    done = clearformer("export", str(tmp_path / "run"), "--to", "gguf", "--weights", "q8_0",
                       "--out", again)  # fmt: skip
    assert done.code == 0, done.err
    assert "GGUF, llama, q8_0; opened again: logits within " in done.out
    # A number that was quantized once is quantized to itself.
    for one, other in zip(*(gguf.GGUFReader(p).tensors for p in (written, again)), strict=True):
        values = [gguf.dequantize(each.data, each.tensor_type) for each in (one, other)]
        assert np.allclose(*values, rtol=1e-3, atol=1e-6)
    done = clearformer("export", str(tmp_path / "run"), "--weights", "q8_0", "--out", "x")
    assert done.code == 2
    assert "--weights is for GGUF files, but --to is 'huggingface': leave it out" in done.err


def test_another_tokenizer(written, pairs, tmp_path):
    from clearformer.hub.tokenizer_files import write_tokenizer

    assert isinstance(import_checkpoint(written, tokenizer="bytes").tokenizer, Bytes)
    small = BytePairs.train(["ab" * 50], 256)
    write_tokenizer(small, tmp_path, 32)
    assert import_checkpoint(written, tokenizer=str(tmp_path)).tokenizer.kind == "bpe"
    write_tokenizer(pairs, tmp_path, 32)
    with pytest.raises(
        ValueError, match=r"m.gguf: its tokenizer has 300 tokens, but its embedding"
    ):
        import_checkpoint(written, tokenizer=str(tmp_path))


def test_missing_library_is_named(written, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(ValueError, match=r"pip install 'clearformer\[gguf\]'"):
        import_gguf(written)


def rewritten(path, out, *, keys=None, tensors=None):
    """The same file, with other keys or tensors; None leaves one out."""
    reader = gguf.GGUFReader(path)
    name = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, (keys or {}).pop("general.architecture", name))
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or key in (keys or {}):
            continue
        sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], sub)
    for key, value in (keys or {}).items():
        if value is not None:
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    changed = tensors or {}
    for each in reader.tensors:
        if each.name not in changed:
            writer.add_tensor(each.name, each.data, raw_dtype=each.tensor_type)
    for name, data in changed.items():
        if data is not None:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"general.architecture": "mamba"}, "its architecture is 'mamba', but clearformer reads"),
        ({"llama.block_count": None}, "it lacks the key llama.block_count"),
        ({"llama.block_count": 5000}, "num_hidden_layers is 5000, but it must be a whole number"),
        ({"llama.block_count": 3}, "it lacks the tensors blk.2"),
        ({"llama.embedding_length": 64}, "token_embd.weight has shape"),
        ({"llama.attention.head_count": "x"}, "num_attention_heads is 'x', but it must be a whole"),
        ({"llama.feed_forward_length": [64, 64]}, "intermediate_size is"),
        ({"llama.feed_forward_length": 32}, "has shape .* but its config makes it"),
        ({"llama.rope.freq_base": float("nan")}, "rope_theta is nan, but it must be a number"),
        ({"tokenizer.ggml.tokens": None}, "tokens must be a list of str"),
    ],
)
def test_wrong_settings_are_refused(written, tmp_path, keys, sentence):
    path = rewritten(written, tmp_path / "forged.gguf", keys=dict(keys))
    with pytest.raises(ValueError, match=rf"forged.gguf: .*{sentence}"):
        import_gguf(path)


def test_wrong_tensors_are_refused_or_noted(written, tmp_path):
    extra = {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}
    path = rewritten(written, tmp_path / "extra.gguf", tensors=extra)
    with pytest.raises(ValueError, match=r"attn_sinks.weight, which its config does not account"):
        import_gguf(path)
    path = rewritten(written, tmp_path / "less.gguf", tensors={"output_norm.weight": None})
    with pytest.raises(ValueError, match=r"it lacks the tensor output_norm.weight"):
        import_gguf(path)
    bad = {"output_norm.weight": np.full(32, np.nan, np.float32)}
    path = rewritten(written, tmp_path / "nan.gguf", tensors=bad)
    assert "32 weights are not finite: the checkpoint is damaged" in import_gguf(path).notes


def test_damaged_files_are_refused_or_read(written, tmp_path):
    """200 damages: a sentence, or a model of the same shapes."""
    chance, content = random.Random(0), written.read_bytes()
    shapes = {name: t.shape for name, t in import_gguf(written).tensors.items()}
    path, refused = tmp_path / "damaged.gguf", 0
    for trial in range(200):
        damaged = bytearray(content)
        if trial % 4 == 0:
            del damaged[chance.randrange(len(damaged)) :]
        elif trial % 4 == 1:
            place = chance.randrange(9000)
            damaged[place : place + 8] = chance.randbytes(8)
        else:
            damaged[chance.randrange(9000)] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            assert {n: t.shape for n, t in import_gguf(path).tensors.items()} == shapes
        except ValueError as problem:
            assert "\n" not in str(problem)  # noqa: PT017
            assert len(str(problem)) < 600  # noqa: PT017
            refused += 1
    assert refused > 100
