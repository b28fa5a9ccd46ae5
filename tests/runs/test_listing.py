"""Runs in a folder (tests/cli/test_runs.py makes real ones)."""

import json

import pytest

from clearformer.config import to_json
from clearformer.runs.listing import compare_runs, find_runs, sparkline, summarize
from clearformer.runs.start import preset_config

ROWS = [
    {"event": "start", "version": 2, "counts": "tokens", "figure": "loss"},
    {"event": "step", "step": 5, "train_loss": 2.0, "seconds": 7.5},
    {"event": "evaluation", "step": 5, "best": True, "validation_loss": 1.5},
    {"event": "evaluation", "step": 9, "best": False, "validation_loss": "nan"},
]


def written(folder, name="modern-tiny", rows=ROWS):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(to_json(preset_config(name))))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_unfinished_and_finished_runs(tmp_path):
    found = summarize(written(tmp_path / "a"))
    assert (found.step, found.status, found.seconds) == (5, "unfinished", 7.5)
    assert found.figures == {}  # NaN is no figure
    assert found.losses == ((5, 1.5),)
    end = {"event": "end", "step": 5, "reason": "finished"}
    assert summarize(written(tmp_path / "b", rows=[*ROWS[:3], end])).status == "finished"


def test_links_and_hidden_folders_are_not_entered(tmp_path):
    written(tmp_path / "runs/a")
    written(tmp_path / "runs/.hidden")
    (tmp_path / "runs/loop").symlink_to(tmp_path / "runs")
    assert [each.folder.name for each in find_runs(tmp_path / "runs")] == ["a"]


def test_settings_that_differ(tmp_path):
    first, second = written(tmp_path / "a"), written(tmp_path / "b", "modern-small")
    paths = [path for path, _, _ in compare_runs(first, second).settings]
    assert "model.layers" in paths
    assert "model.norm" not in paths
    with pytest.raises(ValueError, match=r"is not a run: it has no config\.json"):
        compare_runs(first, tmp_path)


def test_sparkline():
    assert sparkline([3.0, 2.0, 1.0]) == "█▅▁"
    assert sparkline([1.0, 1.0]) == "▁▁"
    assert sparkline([]) == ""
