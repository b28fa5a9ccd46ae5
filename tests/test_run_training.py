"""Training from Python: the same runs as from the command line."""

import inspect
import json
import os
import re
import signal
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from clearformer import families
from clearformer.run_training import Training, train
from clearformer.runs import progress
from clearformer.runs.start import preset_config
from clearformer.training.events import Ended, Evaluation, Step

TINY = {"length": 16, "layers": 1, "width": 16, "heads": 2, "model.hidden": 32, "batch_size": 4,
        "threads": 1}  # fmt: skip
MODERN = {**TINY, "key_heads": 1}
LABELLED = [(f"{word} film number {i}", word) for i in range(12) for word in ("good", "bad")]


@pytest.fixture(autouse=True)
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CLEARFORMER_DATA", raising=False)
    path = tmp_path / "mine.txt"
    path.write_text("\n".join(f"{i} bottles of ale on the wall" for i in range(400)))
    return path


def metrics(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["train_loss"] for row in rows if row["event"] == "step"]


def test_train_returns_a_model_that_generates(text, tmp_path, capsys):
    model = train(data=text, out=tmp_path / "run", steps=4, **MODERN)
    assert len(model.generate("1 bottles", max_tokens=4, seed=1).encode()) >= 4
    out = capsys.readouterr().out
    assert "training: modern-tiny" in out
    assert "finished at step 4" in out
    assert {"loss.png", "README.md"} <= {each.name for each in (tmp_path / "run").iterdir()}


def test_matches_run_of_command_line(text, tmp_path, capsys):
    from clearformer.cli.main import main

    list(Training("modern-tiny", data=text, out=tmp_path / "a", steps=3, **MODERN))
    words = [f"--{name.replace('_', '-')}={value}" for name, value in MODERN.items()]
    with pytest.raises(SystemExit) as leaving:
        main(["train", "modern-tiny", "--data", str(text), "--out", str(tmp_path / "b"),
              "--steps", "3", *words])  # fmt: skip
    assert not leaving.value.code
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")
    assert (tmp_path / "a/config.json").read_text() == (tmp_path / "b/config.json").read_text()


def test_events_can_be_iterated(text, capsys):
    events = list(Training(data=text, steps=3, evaluations=1, **MODERN))
    assert [e.step for e in events if isinstance(e, Step)] == [1, 2, 3]
    assert any(isinstance(e, Evaluation) for e in events)
    assert events[-1] == Ended(3, "finished")
    assert capsys.readouterr().out == ""


def test_default_folder_is_named_after_preset_and_data(text, tmp_path):
    assert str(Training("gpt2-small", data=text).folder) == os.path.join("runs", "gpt2-small-mine")


def test_run_can_be_stopped_and_resumed(text, tmp_path):
    whole = Training(data=text, out=tmp_path / "whole", steps=6, **MODERN)
    list(whole)
    training = Training(data=text, out=tmp_path / "run", steps=6, **MODERN)
    for event in training:
        if isinstance(event, Step) and event.step == 2:
            training.stop()
    assert event == Ended(2, "stopped", 130)
    events = list(Training(out=tmp_path / "run", resume=True))
    assert [e.step for e in events if isinstance(e, Step)] == [3, 4, 5, 6]
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


def test_context_manager_releases_folder(text, tmp_path):
    given = {"data": text, "out": tmp_path / "run", "steps": 6, **MODERN}
    with Training(**given) as training:
        events = iter(training)
        while not isinstance(next(events), Step):
            pass
        with pytest.raises(ValueError, match="is being trained by another process"):
            list(Training(**given, resume=True))
    assert list(Training(**given, resume=True))[-1] == Ended(6, "finished")


def test_rejects_folder_with_existing_run(text, tmp_path):
    list(Training(data=text, out=tmp_path / "run", steps=1, **MODERN))
    with pytest.raises(ValueError, match=r"already holds a run at step 1: add --resume"):
        list(Training(data=text, out=tmp_path / "run", steps=1, **MODERN))


def test_ctrl_c_saves_and_returns_the_model(text, tmp_path, capsys):
    # A shell makes background jobs ignore Ctrl-C, and they keep ignoring it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.getsignal(signal.SIGINT)

    def interrupt(event):
        if isinstance(event, Step) and event.step == 2:
            signal.raise_signal(signal.SIGINT)

    training = Training(
        data=text, out=tmp_path / "run", steps=1000, on_event=interrupt, quiet=True, **MODERN
    )
    model = training.run()
    assert model is training.model
    assert (tmp_path / "run/checkpoints/step-2/manifest.json").exists()
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"clearformer: note: stopped and saved; clearformer.train(out={str(tmp_path / 'run')!r}, "
        f"resume=True) continues"
    )
    assert signal.getsignal(signal.SIGINT) == before


def test_works_outside_main_thread(text, tmp_path):
    ended = []
    training = Training(data=text, out=tmp_path / "run", steps=2, **MODERN)
    thread = threading.Thread(target=lambda: ended.extend(training))
    thread.start()
    thread.join()
    assert ended[-1] == Ended(2, "finished")


def test_accepts_config(text, tmp_path):
    config = preset_config("modern-tiny")
    config = replace(config, model=replace(config.model, layers=3))
    training = Training(config=config, data=text, steps=7)
    assert training.config.model.layers == 3
    assert training.config.train.steps == 7
    assert training.config.data.source == str(text)


def test_model_config_uses_recipe_of_family(text):
    made = families.gpt2("small")
    training = Training(made, data=text)
    assert training.config.train == preset_config("gpt2-small").train
    assert training.config.model == made


def test_settings_of_none_use_recipe(text):
    training = Training(data=text, minutes=None, learning_rate=None, gradient_clip=None)
    usual = preset_config("modern-tiny").train
    assert training.config.train.minutes == usual.minutes
    assert training.config.train.learning_rate == usual.learning_rate
    assert training.config.train.gradient_clip is None


def test_in_memory_pairs_train_classifier_that_resumes(tmp_path):
    options = {"out": tmp_path / "run", "data.vocabulary": None, "evaluations": 1, **TINY}
    training = Training("classifier-imdb", data=LABELLED, steps=2, **options)
    list(training)
    rows = [json.loads(line) for line in (tmp_path / "run/data.jsonl").read_text().splitlines()]
    assert rows[0] == {"text": "good film number 0", "label": "good"}
    assert list(Training(out=tmp_path / "run", steps=3, resume=True))[-1].step == 3
    with pytest.raises(ValueError, match="holds other data than was given"):
        list(Training("classifier-imdb", data=LABELLED[2:], steps=4, resume=True, **options))


def test_in_memory_texts_train_generator(tmp_path):
    texts = [f"{i} green bottles" for i in range(100)]
    training = Training("modern-tiny", data=texts, steps=1, out=tmp_path / "run", **MODERN)
    assert list(training)[-1].step == 1
    assert (tmp_path / "run/data.txt").read_text().startswith("0 green bottles\n1 green")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"data": []}, "data is an empty list: give at least one text, or a path"),
        (
            {"data": ["a", 5]},
            "data[1] is 5, but data must be a path, a list of texts, a list of (text, label) "
            "pairs, a list of dicts, a pandas frame or a datasets.Dataset",
        ),
        ({"layrs": 3}, "train has no setting 'layrs': did you mean 'layers'?"),
        ({"preset": "modrn"}, "there is no model 'modrn': did you mean 'modern'?"),
        (
            {"processes": 2},
            "processes cannot be given here, since this process trains alone: start several with "
            "clearformer train --processes N, or with torchrun",
        ),
        (
            {"preset": "classify"},
            "classify gives a trained model a new head: add --from RUN",
        ),
    ],
)
def test_rejects_invalid_options(options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        Training(**options)
    assert str(caught.value) == sentence


def test_missing_file_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.txt"):
        list(Training(data="nowhere.txt", out=tmp_path / "runs/x", **MODERN))
    assert not (tmp_path / "runs").exists()


def test_help_shows_every_argument():
    shown = inspect.signature(train).parameters
    assert set(inspect.signature(Training).parameters) == set(shown)
    for name in set(shown) - {"settings"}:
        assert f"        {name} (" in train.__doc__, name


def test_notebook_shows_progress_bar(text, tmp_path, monkeypatch):
    updates = []
    handle = SimpleNamespace(update=lambda bundle, raw: updates.append(bundle))

    def display(bundle, raw, display_id):
        updates.append(bundle)
        return handle

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 0.0)
    training = Training(data=text, out=tmp_path / "<b>run", steps=3, **MODERN)
    training.execute(progress.reporter(quiet=False, json=False), lambda: 0)
    assert '<progress value="0.0000"' in updates[0]["text/html"]
    assert "&lt;b&gt;run" in updates[0]["text/html"]
    assert "<b>" not in updates[-1]["text/html"]
    assert '<progress value="1.0000"' in updates[-1]["text/html"]
    assert "finished at step 3" in updates[-1]["text/plain"]
    assert "validation" in updates[-1]["text/plain"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"data": ""}, "`data` is '', but it must be the path of a folder or file"),
        ({"out": ""}, "`out` is '', but it must be the path"),
        ({"data": {"a": 1}}, "data is {'a': 1}, but it must be a path, a list of texts"),
        ({"data": 3}, "data is 3, but it must be a path"),
        ({"data": [("a", float("nan")), ("b", 1)]}, "the label of data[0] is nan, but it must be"),
        ({"data": [("a", None), ("b", 1)]}, "the label of data[0] is None, but it must be a text"),
        ({"preset": 3}, "preset is 3, but it must be a name or a ModelConfig"),
        ({"config": 3}, "config is 3, but it must be a RunConfig"),
    ],
)
def test_rejects_invalid_data_and_out(given, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        Training(**given)


def test_numpy_labels_and_retry_after_error(tmp_path):
    given = {**TINY, "steps": 1, "out": tmp_path / "run", "quiet": True}
    few = [("a", "x"), ("b", "y")]
    with pytest.raises(ValueError, match="no label has two different texts"):
        train("classifier-imdb", data=few, **given)
    rows = [(text, np.int64(label == "good")) for text, label in LABELLED]
    model = train("classifier-imdb", data=rows, **given)
    assert model.config.head.names == ("0", "1")


def test_trains_on_pandas_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = [{"id": i, "message": text, "topic": label} for i, (text, label) in enumerate(LABELLED)]
    frame = pandas.DataFrame([*rows, {"id": 99, "message": "no topic", "topic": None}])
    model = train(
        "classifier-imdb", data=frame, text="message", label="topic", steps=1, quiet=True,
        out=tmp_path / "run", **TINY,
    )  # fmt: skip
    assert model.config.head.names == ("bad", "good")
    lines = (tmp_path / "run" / "data.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"id": 0, "message": "good film number 0", "topic": "good"}
    assert json.loads(lines[-1])["topic"] is None


def test_docstring_examples_run():
    import doctest
    import pkgutil
    from importlib import import_module

    from clearformer import arguments, builder, model, run_training, sklearn
    from clearformer.config import adapters
    from clearformer.interpretability import watch

    # doctest looks into the file of a package alone, which only names what others define.
    names = [each.name for each in pkgutil.iter_modules(model.__path__, "clearformer.model.")]
    tried = {}
    named = (adapters, arguments, builder, run_training, sklearn)
    for module in (*named, import_module(watch.__module__), *map(import_module, names)):
        failed, tried[module.__name__] = doctest.testmod(module)
        assert not failed, module.__name__
    assert sum(tried.values()) >= 20
    assert tried["clearformer.model.model"] >= 4


def test_on_start_sees_the_module_once_and_changes_nothing(text, tmp_path):
    from clearformer.verification.check import verify

    reports, losses = [], []
    for name, look in (
        ("plain", None),
        ("verified", lambda module: reports.append(verify(module))),
    ):
        own = []
        training = Training(
            data=text,
            out=tmp_path / name,
            steps=2,
            quiet=True,
            on_start=look,
            on_event=lambda event, own=own: own.append(getattr(event, "loss", None)),
            **MODERN,
        )
        training.run()
        losses.append([each for each in own if each is not None])
    assert len(reports) == 1
    assert reports[0]
    assert losses[0] == losses[1]
