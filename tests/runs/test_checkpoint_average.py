"""Averages of the last checkpoints, opened like any run."""

import pytest
import torch

from clearformer.runs import checkpoint
from clearformer.runs.checkpoint_average import average, last_checkpoints, mean
from clearformer.runs.load import open_translator


def test_average_is_mean_of_weights(trained_translator, tmp_path):
    out = tmp_path / "mean"
    found = average(trained_translator, 3, out)
    several = last_checkpoints(trained_translator, 3)
    steps = [each.step for each in several]
    assert found.manifest["averaged"] == steps == sorted(steps, reverse=True)
    assert len(set(steps)) == 3
    weights = found.tensors("model.safetensors")
    all_weights = [each.tensors("model.safetensors") for each in several]
    for name, value in weights.items():
        expected = torch.stack([each[name] for each in all_weights]).mean(0)
        torch.testing.assert_close(value, expected)
    assert any(not torch.equal(weights[name], all_weights[0][name]) for name in weights)
    opened = open_translator(out)
    named = dict(opened.translator.model.named_parameters())
    assert all(torch.equal(named[name], value) for name, value in weights.items())


def test_average_of_one_checkpoint_is_itself(trained_translator):
    (newest,) = last_checkpoints(trained_translator, 1)
    for name, value in mean([newest]).items():
        assert value.equal(newest.tensors("model.safetensors")[name])


def test_rejects_invalid_number_of_checkpoints(trained_translator, tmp_path):
    with pytest.raises(ValueError, match=r"checkpoints, but --last is 50: use a smaller number, "
                       "or train with --train.keep-checkpoints 50"):  # fmt: skip
        average(trained_translator, 50, tmp_path / "x")
    with pytest.raises(ValueError, match="--last is 0, but it must be at least 1"):
        average(trained_translator, 0, tmp_path / "x")
    with pytest.raises(ValueError, match="is not a run: it has no checkpoints"):
        average(tmp_path, 2, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_does_not_overwrite_existing_run(trained_translator):
    with pytest.raises(ValueError, match="already holds a run: choose another --out"):
        average(trained_translator, 2, trained_translator)


def test_rejects_damaged_checkpoint(trained_translator, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(trained_translator, copy)
    newest = checkpoint.newest(copy / "checkpoints", lambda sentence: None)
    path = newest.folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ValueError, match=r"model.safetensors was altered since it was written"):
        average(copy, 2, tmp_path / "x")


def test_does_not_follow_symlinks(trained_translator, tmp_path):
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("precious")
    out.mkdir()
    (out / "config.json").symlink_to(victim)
    average(trained_translator, 1, out)
    assert victim.read_text() == "precious"
    assert not (out / "config.json").is_symlink()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").symlink_to(trained_translator / "checkpoints")
    with pytest.raises(ValueError, match="run/checkpoints is a symbolic link"):
        average(tmp_path / "run", 1, tmp_path / "other")
    (tmp_path / "run/checkpoints").unlink()
    (tmp_path / "run/checkpoints").mkdir()
    (tmp_path / "run/checkpoints/step-8").symlink_to(trained_translator / "checkpoints/step-8")
    with pytest.raises(ValueError, match="step-8 is a symbolic link"):
        average(tmp_path / "run", 1, tmp_path / "other")
    assert not (tmp_path / "other").exists()
