"""TensorBoard's files, read by its own reader; Weights & Biases through a stand-in."""

import sys
import types

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import clearformer as cf
from clearformer.runs import log_writers
from clearformer.runs.log_writers import WRITERS, logdir, require_logs, tensorboard
from clearformer.runs.metrics import read
from clearformer.training.events import Step

SETTINGS = {"layers": 1, "width": 16, "heads": 2, "key_heads": 1, "hidden": 24, "length": 16,
            "batch_size": 4, "evaluations": 2, "threads": 1, "quiet": True}  # fmt: skip


@pytest.fixture
def train(tmp_path):
    source = tmp_path / "text.txt"
    source.write_text("some words to learn from, again and again\n" * 100)

    def start(steps=4, out=tmp_path / "run", **options):
        return cf.train("modern-tiny", data=source, out=out, steps=steps, **SETTINGS, **options)

    return start


def points(folder):
    """The scalars in a folder, by name, as TensorBoard reads them."""
    read = EventAccumulator(str(folder))
    read.Reload()
    return {
        name: [(event.step, event.value) for event in read.Scalars(name)]
        for name in read.Tags()["scalars"]
    }


def expected(run):
    rows = read(run / "metrics.jsonl")
    return {
        "loss/train": [(r["step"], r["train_loss"]) for r in rows if r["event"] == "step"],
        "loss/validation": [
            (r["step"], r["validation_loss"]) for r in rows if r["event"] == "evaluation"
        ],
    }


def same(found, wanted):
    assert found.keys() >= wanted.keys()
    for name, curve in wanted.items():
        assert [step for step, _ in found[name]] == [step for step, _ in curve]
        assert [value for _, value in found[name]] == pytest.approx([v for _, v in curve])


def test_tensorboard_reads_the_metrics(train, tmp_path):
    train(log="tensorboard")
    found = points(tmp_path / "run/tensorboard")
    same(found, expected(tmp_path / "run"))
    assert len(found["loss/train"]) == 4
    assert {"lr", "grad_norm", "tokens", "tokens_per_second"} <= found.keys()


def test_resume_writes_no_point_twice(train, tmp_path):
    def interrupted(event):
        if isinstance(event, Step) and event.step == 5:
            raise KeyboardInterrupt  # after the checkpoint of step 4, without saving

    with pytest.raises(KeyboardInterrupt):
        train(8, log="tensorboard", on_event=interrupted)
    folder = tmp_path / "run/tensorboard"
    assert [step for step, _ in points(folder)["loss/train"]][-1] >= 4
    train(8, log=["tensorboard"], resume=True)
    same(points(folder), expected(tmp_path / "run"))
    assert [step for step, _ in points(folder)["loss/train"]] == list(range(1, 9))
    assert len(list(folder.iterdir())) == 1


def test_finished_runs_are_written(train, tmp_path):
    train()
    train(3, out=tmp_path / "other")
    runs = tmp_path / "run", tmp_path / "other"
    targets = cf.tensorboard(*runs)
    assert targets == [run / "tensorboard" for run in runs]
    assert logdir(targets) == tmp_path
    for run in runs:
        same(points(run / "tensorboard"), expected(run))
    again = tensorboard(*runs, out=tmp_path / "all")
    assert again == [tmp_path / "all/run", tmp_path / "all/other"]
    tensorboard(*runs, out=tmp_path / "all")  # replaces them
    same(points(tmp_path / "all/run"), expected(tmp_path / "run"))
    assert logdir(again[:1]) == tmp_path / "all/run"


def test_foreign_event_files_stay(train, tmp_path):
    train(2)
    folder = tmp_path / "all/run"
    folder.mkdir(parents=True)
    (folder / "events.out.tfevents.1.host.2.3").write_bytes(b"")
    tensorboard(tmp_path / "run", out=tmp_path / "all")
    assert len(list(folder.iterdir())) == 2


def test_what_is_no_run_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="no run was given"):
        tensorboard()
    with pytest.raises(ValueError, match=r"is not a run with metrics: it has no metrics.jsonl"):
        tensorboard(tmp_path)
    with pytest.raises(ValueError, match="two runs have the name a"):
        tensorboard(tmp_path / "a", tmp_path / "b/a", out=tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"has no step in its metrics.jsonl yet"):
        tensorboard(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("{")
    monkeypatch.setattr(log_writers.lock, "held", lambda folder: True)
    with pytest.raises(ValueError, match="is being trained: choose another folder with `out`"):
        tensorboard(tmp_path)


def test_folder_that_cannot_be_written(train, tmp_path):
    train(2)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"could not be written: .*Not a directory"):
        tensorboard(tmp_path / "run", out=tmp_path / "file")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run/tensorboard").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="could not be written"):
        tensorboard(tmp_path / "run")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_names_of_logs(monkeypatch):
    assert require_logs(None) == ()
    assert require_logs("tensorboard") == require_logs(["tensorboard"] * 2) == ("tensorboard",)
    with pytest.raises(ValueError, match="`log` is 'mlflow', but it must be tensorboard or wandb"):
        cf.Training("modern-tiny", log="mlflow")
    monkeypatch.setattr(log_writers.importlib.util, "find_spec", lambda name: None)
    for name in WRITERS:
        with pytest.raises(ValueError, match=rf"pip install 'clearformer\[{name}\]'"):
            require_logs(name)


class FakeRun:
    def __init__(self, options):
        self.options, self.logged, self.finished = options, [], False

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.finished = True


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in with the calls that we make: the package and what it brings have 125 MB."""
    runs = []

    def init(**options):
        runs.append(FakeRun(options))
        return runs[-1]

    module = types.ModuleType("wandb")
    module.__spec__ = types.SimpleNamespace()
    module.init, module.Settings = init, lambda **settings: settings
    monkeypatch.setitem(sys.modules, "wandb", module)
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return runs


def test_wandb_gets_the_metrics_offline(train, tmp_path, wandb):
    train(log=["wandb", "tensorboard"])
    (run,) = wandb
    assert {k: run.options[k] for k in ("project", "name", "dir", "mode")} == {
        "project": "clearformer", "name": "run", "dir": str(tmp_path / "run"), "mode": "offline",
    }  # fmt: skip
    assert run.options["config"]["train"]["batch_size"] == 4
    assert run.finished
    losses = [(step, v["loss/train"]) for step, v in run.logged if "loss/train" in v]
    assert losses == expected(tmp_path / "run")["loss/train"]
    assert [step for step, _ in run.logged] == sorted(step for step, _ in run.logged)


def test_wandb_settings_of_the_environment(train, wandb, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    train(2, log="wandb")
    assert (wandb[0].options["mode"], wandb[0].options["project"]) == ("disabled", "mine")


def test_resumed_run_gives_wandb_the_whole_curve(train, tmp_path, wandb):
    train(3, log="wandb")
    train(5, log="wandb", resume=True)
    steps = [step for step, values in wandb[1].logged if "loss/train" in values]
    assert steps == [1, 2, 3, 4, 5]


def test_run_goes_on_without_a_log_that_fails(train, tmp_path, wandb, monkeypatch, capsys):
    def broken(self, values, step):
        raise RuntimeError("wandb lost its service")

    monkeypatch.setattr(FakeRun, "log", broken)
    train(4, log=["wandb", "tensorboard"])
    assert (
        capsys.readouterr().err.count("wandb failed and is left out from here on: wandb lost") == 1
    )
    assert len(points(tmp_path / "run/tensorboard")["loss/train"]) == 4
