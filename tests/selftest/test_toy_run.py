"""The toy run: comparison of runs."""

import shutil

import pytest

from clearformer.selftest import command_runner, toy_run
from clearformer.selftest.processes import Missed


def test_require_same_detects_one_changed_bit(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = toy_run.ToyRun(tmp_path, 2)
    assert command_runner.run(run.arguments(tmp_path / "one")).code == 0
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    toy_run.require_same(tmp_path / "one", tmp_path / "other")
    assert toy_run.newest_step(tmp_path / "one") == 2
    assert toy_run.last_record(tmp_path / "one")["exit"] == 0
    metrics = tmp_path / "other/metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"train_loss": 5', '"train_loss": 6'))
    with pytest.raises(Missed, match="curve"):
        toy_run.require_same(tmp_path / "other", tmp_path / "one")
    (tmp_path / "other/checkpoints/step-2/model.safetensors").write_bytes(b"")
    with pytest.raises(Missed, match="a checkpoint was lost"):
        toy_run.newest_step(tmp_path / "other")
