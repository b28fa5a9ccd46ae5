"""Writing an imported model as a run, atomically."""

from dataclasses import replace

import pytest
import torch

from clearformer.hub.importing import import_checkpoint
from clearformer.hub.write_run import atomic_folder, write_run
from clearformer.runs.load import open_run
from clearformer.text import sha256


@pytest.mark.parametrize("name", ["gpt2", "bert", "bert-features", "bert-classes", "qwen3"])
def test_written_run_gives_same_outputs(folder, tokens, tmp_path, name):
    path, _ = folder(name)
    found = import_checkpoint(path)
    write_run(found, tmp_path / "run")
    opened = open_run(tmp_path / "run")
    assert opened.checkpoint.step == 0
    assert opened.config.model == found.config
    assert sha256(opened.tokenizer) == sha256(found.tokenizer)
    with torch.no_grad():
        given, expected = opened.model(tokens), found.model()(tokens)
    for one, other in zip(given, expected, strict=True):
        assert one.equal(other)
    assert open_run(tmp_path / "run/checkpoints/step-0").checkpoint.step == 0


def test_does_not_overwrite_existing_folder(folder, tmp_path):
    path, _ = folder("gpt2")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="already exists: choose another folder"):
        write_run(import_checkpoint(path), tmp_path / "run")
    (tmp_path / "run/mine.txt").unlink()
    write_run(import_checkpoint(path), tmp_path / "run")  # an empty folder is as good as none


def test_rejects_checkpoint_without_tokenizer(folder, tmp_path):
    path, _ = folder("gpt2")
    with pytest.raises(ValueError, match=r"has no tokenizer, .* give --tokenizer a folder"):
        write_run(replace(import_checkpoint(path), tokenizer=None), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_failure_leaves_no_files(folder, tmp_path, monkeypatch):
    path, _ = folder("gpt2")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("clearformer.safe_files.replace", full)
    place = tmp_path / "place"
    with pytest.raises(ValueError, match="cannot be written: No space left on device"):
        write_run(import_checkpoint(path), place / "run")
    assert list(place.iterdir()) == []


def test_atomic_folder_is_complete_or_absent(tmp_path):
    with atomic_folder(tmp_path / "a/b") as folder:
        (folder / "x").write_text("x")
        assert not (tmp_path / "a/b").exists()
    assert (tmp_path / "a/b/x").read_text() == "x"
    with pytest.raises(KeyError), atomic_folder(tmp_path / "c") as folder:
        raise KeyError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
