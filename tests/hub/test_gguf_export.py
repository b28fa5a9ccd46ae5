"""Exports to GGUF: equal after reading again, quantized as asked, and refused with a reason."""

from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch

from clearformer.builder import build
from clearformer.config import Biases, GenerationDefaults, Llama3Scaling, Rotary
from clearformer.hub import compare
from clearformer.hub.gguf_export import WEIGHTS, to_gguf
from clearformer.hub.importing import import_checkpoint
from clearformer.text import Bytes, Characters
from clearformer.text.chat_template import ChatTemplate

SIZES = {"vocabulary": 256, "width": 32, "hidden": 64, "heads": 4, "key_heads": 2}
PLAIN = {**SIZES, "query_key_norm": None}
NEIGHBOURS = Rotary(pairs="neighbours")
SCALED = Rotary(base=100.0, scaling=Llama3Scaling(factor=8.0, low=1.0, high=4.0, length=16))
ALL_BIASES = Biases(attention=True, attention_output=True, feed_forward=True)
KINDS = {
    "gpt2": ("gpt2", {**SIZES, "key_heads": None}),
    "llama": ("modern", PLAIN),
    "llama-neighbours": ("modern", {**PLAIN, "position": NEIGHBOURS}),
    "llama-scaled": ("modern", {**PLAIN, "position": SCALED}),
    "llama-biased": ("modern", {**PLAIN, "biases": ALL_BIASES}),
    "qwen2": (
        "modern",
        {**PLAIN, "biases": Biases(attention=True, attention_output=False, feed_forward=False)},
    ),
    "qwen3": ("modern", SIZES),
    "qwen3-wide": ("modern", {**SIZES, "head_width": 16}),
}


@pytest.fixture
def model(small, scrambled):
    def make(kind, **changes):
        family, settings = KINDS[kind]
        config = small(family, **{**settings, **changes})
        torch.manual_seed(0)
        return scrambled(build(config)).eval(), config

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_export_is_the_same_model(model, tmp_path, kind):
    ours, config = model(kind)
    done = to_gguf(ours, config, GenerationDefaults(), Bytes(), tmp_path / "m.gguf")
    assert done.form == f"GGUF, {kind.partition('-')[0]}, f32"
    assert done.tokens == 50
    assert done.difference < 1e-5
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]
    found = import_checkpoint(tmp_path / "m.gguf")
    assert isinstance(found.tokenizer, Bytes)
    assert found.generation == GenerationDefaults(end_ids=())
    tokens = torch.randint(256, (2, 7))
    torch.testing.assert_close(found.model()(tokens), ours(tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights_are_stored_as_asked(model, tmp_path, weights):
    ours, config = model("qwen3")
    done = to_gguf(ours, config, GenerationDefaults(), Bytes(), tmp_path / "m.gguf", weights)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    kinds = {each.name: each.tensor_type.name.lower() for each in reader.tensors}
    assert kinds["blk.0.ffn_down.weight"] == weights
    assert kinds["token_embd.weight"] == ("q8_0" if weights == "q4_0" else weights)
    assert {kinds[name] for name in kinds if "norm" in name} == {"f32"}
    assert done.difference < {"f32": 1e-6, "f16": 0.05, "q8_0": 0.5, "q4_0": 10}[weights]
    # What we read is what the library dequantizes.
    found = import_checkpoint(tmp_path / "m.gguf")
    stored = next(each for each in reader.tensors if each.name == "blk.1.ffn_down.weight")
    expected = gguf.dequantize(stored.data, stored.tensor_type)
    assert np.array_equal(found.tensors["stack.blocks.1.feed_forward.down.weight"], expected)
    noted = [note for note in found.notes if "are now float32" in note]
    assert bool(noted) == (weights != "f32")


def test_rows_that_are_no_blocks_are_float16(model, tmp_path):
    ours, config = model("llama", hidden=40)
    done = to_gguf(ours, config, GenerationDefaults(), Bytes(), tmp_path / "m.gguf", "q8_0")
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    kinds = {each.name: each.tensor_type.name for each in reader.tensors}
    assert (kinds["blk.0.ffn_down.weight"], kinds["blk.0.ffn_up.weight"]) == ("F16", "Q8_0")
    assert f"{config.layers} matrices are float16" in done.notes[-1]


def test_end_tokens_and_template_are_kept(model, tmp_path):
    ours, config = model("llama")
    template = ChatTemplate(source="{{ messages[0].content }}")
    generation = GenerationDefaults(end_ids=(10, 0), chat_template=template)
    to_gguf(ours, config, generation, Bytes(), tmp_path / "m.gguf")
    found = import_checkpoint(tmp_path / "m.gguf").generation
    assert found.end_ids == (10, 0)
    assert found.chat_template.source == template.source
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    assert fields["tokenizer.chat_template"].contents() == template.source


def test_failed_comparison_removes_the_file(model, tmp_path, monkeypatch):
    ours, config = model("llama")
    monkeypatch.setattr(compare, "difference", lambda *arguments: float("nan"))
    with pytest.raises(ValueError, match="gives other logits"):
        to_gguf(ours, config, GenerationDefaults(), Bytes(), tmp_path / "m.gguf")
    assert not list(tmp_path.iterdir())


def test_models_and_names_that_are_refused(model, small, tmp_path):
    ours, config = model("llama")
    plain = GenerationDefaults()
    with pytest.raises(ValueError, match=r"out must end in .gguf"):
        to_gguf(ours, config, plain, Bytes(), tmp_path / "out")
    with pytest.raises(ValueError, match=r"llama.cpp has no characters tokenizer"):
        to_gguf(ours, config, plain, Characters.train(["abc"]), tmp_path / "m.gguf")
    (tmp_path / "m.gguf").touch()
    with pytest.raises(ValueError, match="already exists"):
        to_gguf(ours, config, plain, Bytes(), tmp_path / "m.gguf")
    other = small("classifier")
    with pytest.raises(ValueError, match="it can classify and embed, not generate"):
        to_gguf(build(other), other, plain, Bytes(), tmp_path / "c.gguf")
    capped = replace(config, head=replace(config.head, cap=5.0))
    with pytest.raises(ValueError, match="has no counterpart among"):
        to_gguf(build(capped), capped, plain, Bytes(), tmp_path / "c.gguf")


@pytest.mark.parametrize(
    ("value", "weights", "sentence"),
    [(float("nan"), "f32", "weights that are not finite"), (1e5, "f16", "too large for f16")],
)
def test_weights_that_cannot_be_stored(model, tmp_path, value, weights, sentence):
    ours, config = model("llama")
    with torch.no_grad():
        ours.stack.blocks[0].feed_forward.down.weight[0, 0] = value
    with pytest.raises(ValueError, match=sentence):
        to_gguf(ours, config, GenerationDefaults(), Bytes(), tmp_path / "m.gguf", weights)
