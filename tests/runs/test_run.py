"""Whole runs: they learn, survive crashes, and a resumed run equals an uninterrupted one."""

import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clearformer.config import (
    HiddenMemory,
    InverseSqrt,
    run_from_json,
    to_json,
)
from clearformer.data import DataFolders
from clearformer.families import xl
from clearformer.runs import checkpoint, metrics
from clearformer.runs.faults import parse
from clearformer.runs.run import Run
from clearformer.training.events import Ended, Evaluation, Step


def test_events_and_files_of_a_run(whole, config):
    folder, events = whole
    steps = [event for event in events if isinstance(event, Step)]
    assert [event.step for event in steps] == list(range(1, 13))
    assert steps[-1].loss < steps[0].loss
    assert [e.step for e in events if isinstance(e, Evaluation)] == [4, 8, 12]
    assert events[-1] == Ended(12, "finished")
    # A warm-up of 3 steps is longer than a tenth of 12.
    assert steps[0].lr == config.train.learning_rate
    assert {path.name for path in folder.iterdir()} >= {
        "config.json", "tokenizer.json", "metrics.jsonl", "checkpoints", "lock",
    }  # fmt: skip
    assert metrics.read(folder / "metrics.jsonl")[-1] == {
        "event": "end", "step": 12, "reason": "finished", "exit": 0,
    }  # fmt: skip
    assert json.loads((folder / "config.json").read_text())["model"]["vocabulary"] == 256


@pytest.mark.parametrize("stop_at", [1, 4, 7, 11])
def test_stopped_and_resumed_equals_uninterrupted(
    whole, config, tmp_path, stop_at, start, same_run
):
    folder = tmp_path / "part"
    run = start(config, folder)
    seen = list(run.events(lambda: 143 if run.state.step >= stop_at else 0))
    assert seen[-1] == Ended(stop_at, "stopped", 143)
    assert metrics.read(folder / "metrics.jsonl")[-1]["exit"] == 143
    torch.rand(3)
    list(start(None, folder, resume=True).events())
    same_run(folder, whole[0])


def as_saved_before(folder, *, without):
    """Take settings out of the config of a checkpoint, as if an older version had written it."""
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    for name in without:
        del saved["train"][name]
    path.write_text(json.dumps(saved))
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest[checkpoint.SEAL]
    manifest["files"]["config.json"] = checkpoint._identity(path)
    (folder / "manifest.json").write_text(checkpoint.sealed(manifest))


def test_run_of_earlier_version_resumes_with_its_schedule(config, tmp_path, start, same_run):
    old = replace(config, train=replace(config.train, decay_start="from_start"))
    whole, part = tmp_path / "whole", tmp_path / "part"
    rates = [event.lr for event in start(old, whole).events() if isinstance(event, Step)]
    assert rates[0] == pytest.approx(config.train.learning_rate / 3)
    run = start(old, part)
    list(run.events(lambda: 143 if run.state.step >= 1 else 0))
    as_saved_before(part / "checkpoints/step-1", without=["decay_start"])
    # Asked for with today's settings, as `train PRESET --resume` does.
    again = start(config, part, resume=True)
    assert again.config.train.decay_start == "from_start"
    list(again.events())
    same_run(part, whole)


def train_until_killed(settings, folder, point, step):
    """In a child process: train until a fault or a step, and be killed there."""
    config = run_from_json(settings)
    faults = parse(None if point == "step" else f"crash:{point}@{step}")
    run = Run(
        config, folder, DataFolders(cache=folder.parent / "cache"), resume=True, faults=faults
    )
    for _ in run.events():
        if point == "step" and run.state.step >= step:
            os.kill(os.getpid(), signal.SIGKILL)


def kill(several, config, folder, point, step):
    arguments = (to_json(config), folder, point, step)
    with several.started(1, train_until_killed, folder.parent, *arguments) as (process,):
        process.join(300)
        output = (folder.parent / "rank-0.txt").read_text()
        assert process.exitcode == -signal.SIGKILL, output


@pytest.mark.parametrize(
    ("point", "step"),
    [("step", 6), ("after_model", 8), ("before_rename", 8), ("after_rename", 4)],
)
def test_killed_and_resumed_equals_uninterrupted(
    whole, config, tmp_path, several, point, step, start, same_run
):
    folder = tmp_path / "killed"
    kill(several, config, folder, point, step)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "lo')  # as a kill in the middle of a write leaves it
    list(start(config, folder, resume=True).events())
    same_run(folder, whole[0])


def test_two_processes_cannot_train_one_run(config, tmp_path, start):
    folder = tmp_path / "shared"
    events = start(config, folder).events()
    next(events)
    with pytest.raises(ValueError, match=rf"another process \(process {os.getpid()} on"):
        start(config, folder, resume=True)
    events.close()
    start(config, folder, resume=True)  # a run that has ended releases its lock


def test_rejects_out_that_is_a_file(config, tmp_path, start):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written to: File exists; choose another"):
        start(config, tmp_path / "file")


@pytest.fixture
def remembering(config):
    """A Transformer-XL with dropout, two micro-batches, and an epoch that ends inside the run."""
    model = replace(
        xl("tiny"), length=8, layers=2, width=16, heads=2, hidden=32, cache=HiddenMemory(length=12)
    )
    model = replace(model, dropout=replace(model.dropout, residual=0.1))
    text = Path(config.data.source)
    text.write_text(text.read_text()[: 4 * 8 * 9])
    train = replace(config.train, accumulation_steps=2)
    return replace(config, model=model, train=train)


def test_memory_is_carried_between_steps(remembering, tmp_path, start):
    folder = tmp_path / "xl"
    run = start(remembering, folder)
    per_epoch = run.task.steps_per_epoch
    assert 3 < per_epoch < 12
    steps = (event for event in run.events() if isinstance(event, Step))
    lengths = [run.state.memory.parts[0][0].length for _ in steps]
    assert lengths[:3] == [8, 12, 12]
    assert lengths[per_epoch] == 8  # the next epoch starts with an empty memory
    saved = checkpoint.newest(folder / "checkpoints", print).tensors("state.safetensors")
    assert saved["memory.1"].shape == (4, 12, 16)


@pytest.mark.parametrize("stop_at", [1, 4, 6, 7, 11])
def test_memory_is_restored_bitwise(remembering, tmp_path, stop_at, start, same_run):
    whole, part = tmp_path / "whole", tmp_path / "part"
    list(start(remembering, whole).events())
    run = start(remembering, part)
    list(run.events(lambda: 130 if run.state.step >= stop_at else 0))
    list(start(None, part, resume=True).events())
    same_run(part, whole)
    ends = [checkpoint.newest(f / "checkpoints", print) for f in (whole, part)]
    one, other = (end.tensors("state.safetensors") for end in ends)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.equal(other[name]), name


def test_killed_segment_run_resumes_bitwise(remembering, tmp_path, several, start, same_run):
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    list(start(remembering, whole).events())
    kill(several, remembering, folder, "step", 6)
    list(start(remembering, folder, resume=True).events())
    same_run(folder, whole)


def test_rejects_text_too_short_for_segments(remembering, tmp_path, start):
    Path(remembering.data.source).write_text("x" * 40)
    with pytest.raises(ValueError, match="4 streams of segments of 8 need 33: give a longer text"):
        start(remembering, tmp_path / "short")


def test_warmup_end_is_kept_when_budget_grows(config, tmp_path, start):
    train = replace(config.train, schedule=InverseSqrt(warmup=50), steps=40)
    config = replace(config, train=train)
    run = start(config, tmp_path / "run")
    list(run.events(lambda: 143 if run.state.step >= 10 else 0))
    assert run.state.warmed["step"] == 4
    longer = replace(config, train=replace(train, steps=400))
    again = start(longer, tmp_path / "run", resume=True)
    events = again.events()
    assert next(e for e in events if isinstance(e, Step)).lr == train.learning_rate * math.sqrt(
        4 / 11
    )
    events.close()
