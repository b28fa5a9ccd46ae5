"""Exporting: choice of the format, verification before the file is kept, and rejected models."""

import json

import pytest
import torch

from clearformer.builder import build
from clearformer.config import GenerationDefaults
from clearformer.hub import compare
from clearformer.hub.exporting import to_huggingface, to_safetensors
from clearformer.hub.importing import import_checkpoint
from clearformer.text import Bytes, Characters


@pytest.fixture
def model(small, scrambled):
    def make(family="modern", **changes):
        config = small(family, **{"vocabulary": 256, **changes})
        return scrambled(build(config)).eval(), config

    return make


def test_exported_folder_can_be_imported(model, tmp_path):
    ours, config = model()
    done = to_huggingface(ours, config, GenerationDefaults(), Bytes(), tmp_path / "out")
    assert (done.tokens, done.notes) == (50, ())
    assert done.difference < 1e-6
    found = import_checkpoint(tmp_path / "out")
    assert isinstance(found.tokenizer, Bytes)
    tokens = torch.randint(256, (2, 7))
    assert found.model()(tokens).equal(ours(tokens))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert json.loads((tmp_path / "out/config.json").read_text())["eos_token_id"] is None


def test_tied_weights_are_written_once(model, tmp_path):
    ours, config = model("gpt2")
    to_huggingface(ours, config, GenerationDefaults(), Bytes(), tmp_path / "out")
    from clearformer.hub.safetensors_files import SafetensorsFile

    file = SafetensorsFile(tmp_path / "out/model.safetensors")
    assert "lm_head.weight" not in file.names()
    assert file.metadata == {"format": "pt"}


@pytest.mark.parametrize("to", [to_huggingface, to_safetensors])
def test_removes_export_that_fails_verification(model, tmp_path, monkeypatch, to):
    ours, config = model()
    monkeypatch.setattr(compare, "difference", lambda *arguments: float("nan"))
    with pytest.raises(ValueError, match=r"gives other logits .by nan.: the export was removed"):
        to(ours, config, GenerationDefaults(), Bytes(), tmp_path / "out.safetensors")
    monkeypatch.undo()
    drawn = iter(range(1000))
    monkeypatch.setattr(
        compare, "stream", lambda *arguments, **named: [type("T", (), {"id": next(drawn)})]
    )
    with pytest.raises(ValueError, match="generates other tokens: the export was removed"):
        to(ours, config, GenerationDefaults(), Bytes(), tmp_path / "out.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_verification_detects_wrong_conversion_table(model, tmp_path, monkeypatch):
    """The comparison sees what a swapped gate would do."""
    ours, config = model()
    from clearformer.hub.tensor_names import GATE_UP

    split = type(GATE_UP).split

    def swapped(self, ours, config):
        parts = split(self, ours, config)
        return parts[::-1] if len(parts) == 2 else parts

    monkeypatch.setattr(type(GATE_UP), "split", swapped)
    with pytest.raises(ValueError, match="gives other logits"):
        to_huggingface(ours, config, GenerationDefaults(), Bytes(), tmp_path / "out")


def test_every_model_exports_to_safetensors(model, tmp_path):
    ours, config = model("xl")
    done = to_safetensors(
        ours, config, GenerationDefaults(), Bytes(), tmp_path / "deep/x.safetensors"
    )
    assert done.difference < 1e-6
    assert import_checkpoint(done.path).config == config
    with pytest.raises(ValueError, match="already exists"):
        to_safetensors(ours, config, GenerationDefaults(), Bytes(), tmp_path / "deep/x.safetensors")
    with pytest.raises(ValueError, match=r"must end in .safetensors"):
        to_safetensors(ours, config, GenerationDefaults(), Bytes(), tmp_path / "x")


def test_unsupported_tokenizer_leaves_no_files(model, tmp_path):
    ours, config = model(vocabulary=3)
    with pytest.raises(ValueError, match="a characters tokenizer cannot be opened"):
        to_huggingface(ours, config, GenerationDefaults(), Characters("ab"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    to_safetensors(ours, config, GenerationDefaults(), Characters("ab"), tmp_path / "x.safetensors")


def test_notes_dropout_that_cannot_be_expressed(model, tmp_path):
    from clearformer.config import Dropout

    ours, config = model("gpt2", dropout=Dropout(hidden=0.2))
    done = to_huggingface(ours, config, GenerationDefaults(), Bytes(), tmp_path / "out")
    assert any("its dropout cannot be expressed there" in note for note in done.notes)
