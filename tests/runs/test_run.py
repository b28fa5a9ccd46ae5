"""A run as a whole: it learns, it survives, and a continued run is the run."""

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from clearformer.config import (
    DataConfig,
    HiddenMemory,
    InverseSqrt,
    RunConfig,
    StableThenDecay,
    TrainConfig,
)
from clearformer.data import DataFolders
from clearformer.distributed.process_group import Alone
from clearformer.families import modern, xl
from clearformer.runs import checkpoint, metrics
from clearformer.runs.faults import Faults
from clearformer.runs.resume import continued
from clearformer.runs.run import Run
from clearformer.train.events import Ended, Evaluation, Saved, Step
from clearformer.train.step import NotFiniteError

TEXT = "the cat sat on the mat, and the dog sat on the log.\n" * 200


@pytest.fixture
def config(tmp_path):
    source = tmp_path / "text.txt"
    source.write_text(TEXT)
    model = modern("tiny")
    model = replace(
        model,
        length=16,
        layers=2,
        width=16,
        hidden=32,
        heads=2,
        key_heads=1,
        dropout=replace(model.dropout, residual=0.1),
    )
    return RunConfig(
        model=model,
        data=DataConfig(source=str(source)),
        train=TrainConfig(
            lr=1e-2,
            batch=4,
            steps=12,
            evaluations=3,
            threads=1,
            precision="float32",
            schedule=StableThenDecay(warmup=3),
        ),
    )


def start(config, folder, **more):
    return Run(config, folder, DataFolders(cache=folder.parent / "cache"), **more)


def curve(folder):
    """Everything in metrics.jsonl that does not depend on the clock."""
    clock = {"seconds", "progress"}
    return [
        {k: v for k, v in record.items() if k not in clock}
        for record in metrics.read(folder / "metrics.jsonl")
    ]


def final(folder):
    return checkpoint.newest(folder / "checkpoints", print).tensors("model.safetensors")


def same_run(one, other):
    assert curve(one) == curve(other)
    for name, value in final(one).items():
        assert value.equal(final(other)[name]), name


@pytest.fixture
def whole(config, tmp_path):
    folder = tmp_path / "whole"
    return folder, list(start(config, folder).events())


def test_events_and_files_of_a_run(whole, config):
    folder, events = whole
    steps = [event for event in events if isinstance(event, Step)]
    assert [event.step for event in steps] == list(range(1, 13))
    assert steps[-1].loss < steps[0].loss
    assert [e.step for e in events if isinstance(e, Evaluation)] == [4, 8, 12]
    assert events[-1] == Ended(12, "finished")
    # A warm-up of 3 steps is longer than a tenth of 12.
    assert steps[0].lr == config.train.lr
    assert {path.name for path in folder.iterdir()} >= {
        "config.json", "tokenizer.json", "metrics.jsonl", "checkpoints", "lock",
    }  # fmt: skip
    assert metrics.read(folder / "metrics.jsonl")[-1] == {
        "event": "end", "step": 12, "reason": "finished", "exit": 0,
    }  # fmt: skip
    assert json.loads((folder / "config.json").read_text())["model"]["vocabulary"] == 256


@pytest.mark.parametrize("stop_at", [1, 4, 7, 11])
def test_stopped_and_continued_is_the_whole_run(whole, config, tmp_path, stop_at):
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


def test_a_run_of_an_earlier_version_goes_on_with_its_own_rates(config, tmp_path):
    old = replace(config, train=replace(config.train, anneal="from_start"))
    whole, part = tmp_path / "whole", tmp_path / "part"
    rates = [event.lr for event in start(old, whole).events() if isinstance(event, Step)]
    assert rates[0] == pytest.approx(config.train.lr / 3)
    run = start(old, part)
    list(run.events(lambda: 143 if run.state.step >= 1 else 0))
    as_saved_before(part / "checkpoints/step-1", without=["anneal"])
    # Asked for with today's settings, as `train PRESET --resume` does.
    again = start(config, part, resume=True)
    assert again.config.train.anneal == "from_start"
    list(again.events())
    same_run(part, whole)


def test_where_the_warm_up_ended_stays_when_the_budget_grows(config, tmp_path):
    train = replace(config.train, schedule=InverseSqrt(warmup=50), steps=40)
    config = replace(config, train=train)
    run = start(config, tmp_path / "run")
    list(run.events(lambda: 143 if run.state.step >= 10 else 0))
    assert run.state.warmed["step"] == 4
    longer = replace(config, train=replace(train, steps=400))
    again = start(longer, tmp_path / "run", resume=True)
    events = again.events()
    assert next(e for e in events if isinstance(e, Step)).lr == train.lr * math.sqrt(4 / 11)
    events.close()


def test_a_stop_file_ends_a_run_and_is_taken_away(config, tmp_path):
    folder = tmp_path / "stopped"
    run = start(config, folder)
    events = run.events()
    next(events)
    (folder / "stop").touch()
    rest = list(events)
    assert isinstance(rest[-1], Ended)
    assert rest[-1].reason == "stopped"
    assert not (folder / "stop").exists()


def test_a_stop_file_from_before_a_run_does_not_end_it(config, tmp_path):
    """Asked for when nothing was running: the next start says so, and goes on."""
    folder = tmp_path / "left"
    run = start(config, folder)
    list(run.events(lambda: 143 if run.state.step >= 4 else 0))
    (folder / "stop").touch()
    said = []
    again = start(None, folder, resume=True, say=said.append)
    assert not (folder / "stop").exists()
    assert [each for each in said if "stop" in each] == [
        "note: a file `stop` from before this start was removed: create it again to end this run"
    ]
    assert list(again.events())[-1].reason == "finished"


def test_a_stop_file_from_while_a_run_loads_ends_it(config, tmp_path):
    folder = tmp_path / "early"
    run = start(config, folder)
    (folder / "stop").touch()  # before its first step, but after its start
    assert list(run.events())[-1] == Ended(0, "stopped", 0)
    assert not (folder / "stop").exists()


def test_workers_that_are_started_again_still_obey_the_stop_file(config, tmp_path, monkeypatch):
    monkeypatch.setattr(Alone, "restarts", 1)
    folder = tmp_path / "restarted"
    folder.mkdir()
    (folder / "stop").touch()
    run = start(config, folder)
    assert list(run.events())[-1] == Ended(0, "stopped", 0)


KILLED = """
import sys
from pathlib import Path
from clearformer.config import run_from_json
from clearformer.data import DataFolders
from clearformer.runs.faults import parse
from clearformer.runs.faults import Faults
from clearformer.runs.run import Run
import json, os, signal
config = run_from_json(json.loads(Path(sys.argv[1]).read_text()))
folder, point, step = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
faults = parse(None if point == "step" else f"crash:{point}@{step}")
run = Run(config, folder, DataFolders(cache=folder.parent / "cache"), resume=True, faults=faults)
for event in run.events():
    if point == "step" and run.state.step >= step:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("point", "step"),
    [("step", 6), ("after_model", 8), ("before_rename", 8), ("after_rename", 4)],
)
def test_killed_and_continued_is_the_whole_run(whole, config, tmp_path, point, step):
    from clearformer.config import to_json

    folder, settings = tmp_path / "killed", tmp_path / "run.json"
    settings.write_text(json.dumps(to_json(config)))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(settings), str(folder), point, str(step)],
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "lo')  # as a kill in the middle of a write leaves it
    list(start(config, folder, resume=True).events())
    same_run(folder, whole[0])


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(whole, config):
    folder, _ = whole
    expected = final(folder)
    (folder / "checkpoints/step-12/model.safetensors").write_bytes(b"cut")
    said = []
    run = start(config, folder, resume=True, say=said.append)
    assert run.state.step == 8
    assert "step-12/model.safetensors was cut or grew" in said[0]
    list(run.events())
    for name, value in final(folder).items():
        assert value.equal(expected[name]), name


def test_a_run_is_not_overwritten(whole, config):
    with pytest.raises(ValueError, match="already holds a run at step 12: add --resume"):
        start(config, whole[0])


def test_other_settings_are_refused_by_name(config):
    other = replace(
        config, model=replace(config.model, width=32), train=replace(config.train, seed=5, steps=99)
    )
    with pytest.raises(ValueError, match=r"model.width \(16 before, 32 now\); train.seed \(0 bef"):
        continued(config, other)
    longer = replace(config, train=replace(config.train, steps=99))
    assert continued(config, longer).train.steps == 99


def test_other_data_is_refused(whole, config, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT.upper())
    with pytest.raises(ValueError, match=r"the data is not the one that .* was trained with"):
        start(config, whole[0], resume=True)


def test_two_processes_cannot_train_one_run(config, tmp_path):
    folder = tmp_path / "shared"
    events = start(config, folder).events()
    next(events)
    with pytest.raises(ValueError, match=rf"another process \(process {os.getpid()} on"):
        start(config, folder, resume=True)
    events.close()
    start(config, folder, resume=True)  # whoever has ended disturbs nobody


def test_nothing_to_resume_is_said(tmp_path):
    with pytest.raises(ValueError, match="holds no run to resume"):
        start(None, tmp_path / "empty", resume=True)


def test_a_folder_that_is_a_file_is_refused(config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written to: File exists; choose another"):
        start(config, tmp_path / "file")


def test_a_loss_that_is_no_number_names_where_it_arose(config, tmp_path):
    folder = tmp_path / "broken"
    run = start(config, folder)
    events = run.events()
    for event in events:
        if isinstance(event, Saved):
            break
    with torch.no_grad():
        run.model.stack.blocks[1].feed_forward.up.weight[0, 0] = float("nan")
    with pytest.raises(NotFiniteError, match=r"step 5: the loss is nan.*blocks.1.feed_forward.up"):
        list(events)
    assert metrics.read(folder / "metrics.jsonl")[-1]["exit"] == 3
    assert all(torch.isfinite(value).all() for value in final(folder).values())


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (ValueError("the prompt\nis empty"), "the prompt is empty"),
        (RuntimeError("you tried to allocate 9 bytes"), "you tried to allocate 9 bytes"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_a_sample_that_fails_ends_no_run(whole, config, tmp_path, problem, reason):
    def sample(run, model):
        raise problem

    said = []
    run = start(config, tmp_path / "run", say=said.append, sample=sample)
    events = list(run.events())
    assert [e.sample for e in events if isinstance(e, Evaluation)] == [None] * 3
    assert events[-1] == Ended(12, "finished")
    notes = [each for each in said if "sample" in each]
    assert notes == [f"note: step {n} has no sample text: {reason}" for n in (4, 8, 12)]
    same_run(whole[0], tmp_path / "run")


def test_smoothing_reaches_the_head(config, tmp_path):
    smooth = replace(config, train=replace(config.train, smoothing=0.3, steps=1))
    run = start(smooth, tmp_path / "smooth")
    assert run.model.head.smoothing == 0.3
    smoothed = next(event for event in run.events() if isinstance(event, Step))
    plain = next(iter(start(config, tmp_path / "plain").events()))
    assert smoothed.loss != plain.loss


def test_patience_ends_a_run_that_no_longer_improves(config, tmp_path):
    hopeless = replace(config.train, lr=1e-12, steps=40, evaluations=20, patience=2)
    said = []
    run = start(replace(config, train=hopeless), tmp_path / "x", say=said.append)
    events = list(run.events())
    evaluations = [event.step for event in events if isinstance(event, Evaluation)]
    assert evaluations == [2, 4, 6]  # the first is the best, then two that are not
    assert events[-1].step == 6
    assert "note: 2 evaluations brought nothing better: enough" in said


def test_a_run_that_learned_nothing_is_told_so_at_its_end(config, tmp_path):
    said = []
    hopeless = replace(config.train, lr=1e-12, steps=60, evaluations=1)
    list(start(replace(config, train=hopeless), tmp_path / "x", say=said.append).events())
    assert any("no better than what knowing nothing gives" in line for line in said)


def test_a_budget_of_minutes_is_kept(config, tmp_path, monkeypatch):
    ticks = itertools.count(step=0.01)  # a clock of its own, whatever the machine does meanwhile
    clock = SimpleNamespace(monotonic=lambda: next(ticks))
    monkeypatch.setattr("clearformer.runs.run.time", clock)
    short = replace(config.train, steps=None, minutes=0.05, evaluations=2)
    events = list(start(replace(config, train=short), tmp_path / "x").events())
    steps = [event for event in events if isinstance(event, Step)]
    assert events[-1].reason == "finished"
    assert steps[-1].seconds > 2.5
    assert steps[-1].lr < max(step.lr for step in steps)


def test_accumulation_changes_nothing_but_rounding(config, tmp_path):
    def losses(accumulate):
        quiet = replace(config.model, dropout=replace(config.model.dropout, residual=0.0))
        train = replace(config.train, accumulate=accumulate, steps=4)
        changed = replace(config, model=quiet, train=train)
        events = start(changed, tmp_path / str(accumulate)).events()
        return [event.loss for event in events if isinstance(event, Step)]

    assert losses(1) == pytest.approx(losses(4), rel=1e-4)


def test_compiling_is_decided_by_the_config_alone(config, tmp_path, monkeypatch):
    def compiles(**changed):
        train = replace(config.train, **{"steps": None, **changed})
        return start(replace(config, train=train), tmp_path / "run")._compiles()

    monkeypatch.setattr("clearformer.train.torch_compile.shutil.which", lambda name: "/usr/bin/c++")
    assert not compiles(steps=5), "a run of seconds"
    assert compiles(steps=10**9)
    assert compiles(minutes=60)
    assert not compiles(minutes=60, compile="off")
    monkeypatch.setattr("clearformer.train.torch_compile.shutil.which", lambda name: None)
    assert not compiles(minutes=60), "there is no compiler"


@pytest.fixture
def remembering(config):
    """A Transformer-XL with dropout, two micro-batches, and an epoch that ends inside the run."""
    model = replace(
        xl("tiny"), length=8, layers=2, width=16, heads=2, hidden=32, past=HiddenMemory(length=12)
    )
    model = replace(model, dropout=replace(model.dropout, residual=0.1))
    text = Path(config.data.source)
    text.write_text(TEXT[: 4 * 8 * 9])
    train = replace(config.train, accumulate=2)
    return replace(config, model=model, train=train)


def test_a_memory_goes_on_from_step_to_step(remembering, tmp_path):
    folder = tmp_path / "xl"
    run = start(remembering, folder)
    per_epoch = run.task.steps_per_epoch
    assert 3 < per_epoch < 12
    steps = (event for event in run.events() if isinstance(event, Step))
    lengths = [run.state.memory.parts[0][0].length for _ in steps]
    assert lengths[:3] == [8, 12, 12]
    assert lengths[per_epoch] == 8  # the next epoch begins anew
    saved = checkpoint.newest(folder / "checkpoints", print).tensors("state.safetensors")
    assert saved["memory.1"].shape == (4, 12, 16)


@pytest.mark.parametrize("stop_at", [1, 4, 6, 7, 11])
def test_a_memory_survives_bit_for_bit(remembering, tmp_path, stop_at):
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


def test_a_killed_segment_stream_goes_on_bit_for_bit(remembering, tmp_path):
    from clearformer.config import to_json

    whole, folder, settings = tmp_path / "whole", tmp_path / "killed", tmp_path / "run.json"
    list(start(remembering, whole).events())
    settings.write_text(json.dumps(to_json(remembering)))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(settings), str(folder), "step", "6"],
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    list(start(remembering, folder, resume=True).events())
    same_run(folder, whole)


def test_a_text_too_short_for_its_segments_is_refused(remembering, tmp_path):
    Path(remembering.data.source).write_text("x" * 40)
    with pytest.raises(ValueError, match="4 streams of segments of 8 need 33: give a longer text"):
        start(remembering, tmp_path / "short")


def gone(folder):
    shutil.rmtree(folder)


def moved(folder):
    folder.rename(folder.with_name("moved"))


def replaced(folder):
    folder.rename(folder.with_name("moved"))
    shutil.copytree(folder.with_name("moved"), folder)


def without_metrics(folder):
    (folder / "metrics.jsonl").unlink()


@pytest.mark.parametrize("lose", [gone, moved, replaced, without_metrics])
@pytest.mark.parametrize("at", [2, 12])
def test_a_run_whose_folder_goes_away_does_not_finish(config, tmp_path, lose, at):
    """Before the first checkpoint, or after the last step: no run ends well that left nothing."""
    folder = tmp_path / "run"
    run = start(config, folder)
    events = run.events()
    for event in events:
        if isinstance(event, Step) and event.step == at:
            break
    lose(folder)
    before = sorted(folder.rglob("*"))
    what = "metrics.jsonl" if folder.exists() else f"the run folder {folder}"
    sentence = f"{what} was removed, moved or replaced while the run was writing to it"
    with pytest.raises(ValueError, match=sentence):
        list(events)
    assert sorted(folder.rglob("*")) == before  # nothing was made anew
    if lose is moved and at == 12:
        list(start(None, tmp_path / "moved", resume=True).events())
        assert metrics.read(tmp_path / "moved" / "metrics.jsonl")[-1]["reason"] == "finished"


def test_a_folder_that_goes_away_after_the_last_checkpoint_is_noticed(config, tmp_path):
    folder = tmp_path / "run"
    run = start(config, folder)
    events = run.events()
    saves = (event for event in events if event == Saved(12, folder / "checkpoints/step-12"))
    next(saves), next(saves)  # before the last evaluation, and after it
    gone(folder)
    with pytest.raises(ValueError, match=f"the run folder {folder} was removed"):
        list(events)
    assert not folder.exists()


def test_a_folder_that_goes_away_while_a_checkpoint_is_written_is_the_reason(config, tmp_path):
    folder = tmp_path / "run"

    class Removing(Faults):
        def reached(self, step):
            return lambda point: gone(folder) if point == "after_optimizer" else None

    with pytest.raises(ValueError, match=f"the run folder {folder} was removed"):
        list(start(config, folder, faults=Removing()).events())
    assert not folder.exists()


def test_a_folder_that_goes_away_before_the_first_step_is_noticed(config, tmp_path):
    folder = tmp_path / "run"
    run = start(config, folder)
    replaced(folder)
    with pytest.raises(ValueError, match="run/lock was removed, moved or replaced"):
        list(run.events())
    assert [each.name for each in folder.iterdir()] == ["lock"]


def test_what_is_no_file_asks_no_run_to_stop(config, tmp_path):
    folder = tmp_path / "run"
    run = start(config, folder)
    (folder / "stop").mkdir()
    (folder / "stop" / "kept").touch()
    assert list(run.events())[-1] == Ended(12, "finished")
    assert (folder / "stop" / "kept").exists()
