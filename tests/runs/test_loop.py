"""The training loop of a run: when it stops, and its final messages."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

from clearformer.distributed.process_group import ProcessGroup
from clearformer.training.events import Ended, Evaluation, Step


def test_stop_file_ends_run_and_is_removed(config, tmp_path, start):
    folder = tmp_path / "stopped"
    run = start(config, folder)
    events = run.events()
    next(events)
    (folder / "stop").touch()
    rest = list(events)
    assert isinstance(rest[-1], Ended)
    assert rest[-1].reason == "stopped"
    assert not (folder / "stop").exists()


def test_old_stop_file_is_ignored(config, tmp_path, start):
    """A request from before the start is reported and ignored."""
    folder = tmp_path / "left"
    run = start(config, folder)
    list(run.events(lambda: 143 if run.state.step >= 4 else 0))
    (folder / "stop").touch()
    said = []
    again = start(None, folder, resume=True, say=said.append)
    assert not (folder / "stop").exists()
    assert [each for each in said if "stop" in each] == [
        "note: an old `stop` file was removed: create it again to stop this run"
    ]
    assert list(again.events())[-1].reason == "finished"


def test_stop_file_created_while_loading_ends_run(config, tmp_path, start):
    folder = tmp_path / "early"
    run = start(config, folder)
    (folder / "stop").touch()  # before its first step, but after its start
    assert list(run.events())[-1] == Ended(0, "stopped", 0)
    assert not (folder / "stop").exists()


def test_restarted_workers_obey_stop_file(config, tmp_path, monkeypatch, start):
    monkeypatch.setattr(ProcessGroup, "restarts", 1)
    folder = tmp_path / "restarted"
    folder.mkdir()
    (folder / "stop").touch()
    run = start(config, folder)
    assert list(run.events())[-1] == Ended(0, "stopped", 0)


def test_patience_stops_run_without_improvement(config, tmp_path, start):
    hopeless = replace(config.train, learning_rate=1e-12, steps=40, evaluations=20, patience=2)
    said = []
    run = start(replace(config, train=hopeless), tmp_path / "x", say=said.append)
    events = list(run.events())
    evaluations = [event.step for event in events if isinstance(event, Evaluation)]
    assert evaluations == [2, 4, 6]  # the first is the best, then two that are not
    assert events[-1].step == 6
    assert "note: stopping early: no improvement in 2 evaluations" in said


def test_reports_run_that_did_not_learn(config, tmp_path, start):
    said = []
    hopeless = replace(config.train, learning_rate=1e-12, steps=60, evaluations=1)
    list(start(replace(config, train=hopeless), tmp_path / "x", say=said.append).events())
    assert any("no better than a uniform guess" in line for line in said)


def test_minutes_budget_is_respected(config, tmp_path, monkeypatch, start):
    ticks = itertools.count(step=0.01)  # a fake clock, independent of the machine
    clock = SimpleNamespace(monotonic=lambda: next(ticks))
    monkeypatch.setattr("clearformer.runs.loop.time", clock)
    short = replace(config.train, steps=None, minutes=0.05, evaluations=2)
    events = list(start(replace(config, train=short), tmp_path / "x").events())
    steps = [event for event in events if isinstance(event, Step)]
    assert events[-1].reason == "finished"
    assert steps[-1].seconds > 2.5
    assert steps[-1].lr < max(step.lr for step in steps)


def test_stop_folder_is_ignored(config, tmp_path, start):
    folder = tmp_path / "run"
    run = start(config, folder)
    (folder / "stop").mkdir()
    (folder / "stop" / "kept").touch()
    assert list(run.events())[-1] == Ended(12, "finished")
    assert (folder / "stop" / "kept").exists()


def test_log_checkpoints_are_kept(config, tmp_path, start):
    """Step 0 and powers of 4 stay; without the setting only the last ones and the best do."""
    train = replace(config.train, steps=20, evaluations=5)
    for wanted in (True, False):
        own = replace(config, train=replace(train, log_checkpoints=wanted))
        folder = tmp_path / str(wanted)
        list(start(own, folder).events())
        steps = {int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*")}
        assert ({0, 4} <= steps) == wanted
        assert 20 in steps
