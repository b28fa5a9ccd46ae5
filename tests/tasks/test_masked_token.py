"""Masked-token and next-sentence task: metrics against hand computation, and resumable runs."""

import json
import math
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from clearformer import data
from clearformer.builder import build
from clearformer.config import DataConfig, Linear, Masking, RunConfig, TrainConfig, to_json
from clearformer.core.heads import IGNORE
from clearformer.data import DataFolders
from clearformer.families import bert
from clearformer.runs import checkpoint, metrics
from clearformer.runs.run import Run
from clearformer.tasks import registry
from clearformer.tasks.masked_token import by_frequency, measure
from clearformer.training import microbatch
from clearformer.training.events import Evaluation, Step

ANIMALS = ("cat", "dog", "bird", "horse", "mouse")
TEXT = "".join(
    f"The {ANIMALS[i % 5]} number {i % 7} sat on the mat. Then it slept!\nIt was {i % 3} o'clock.\n"
    for i in range(300)
)


def config_of(source, size="tiny", **train):
    model = replace(
        bert(size), length=24, layers=1, width=16, heads=2, hidden=32, dropout=bert().dropout
    )
    return RunConfig(
        model=model,
        data=DataConfig(
            source=str(source), tokenizer="wordpiece", vocabulary=120, masking=Masking()
        ),
        train=TrainConfig(
            **{"learning_rate": 1e-2, "batch_size": 8, "steps": 12, "evaluations": 3, "threads": 1}
            | train,
            schedule=Linear(warmup=3),
            precision="float32",
        ),
    )


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def load(config, tmp_path):
    return registry.load(config, DataFolders(cache=tmp_path))


@pytest.mark.parametrize("size", ["tiny", "tiny-masked"])
def test_model_accepts_batches(source, tmp_path, size):
    task = load(config_of(source, size), tmp_path)
    batch = task.batch(0)
    model = build(task.config.model)
    sums, counts = model.loss(batch)
    assert counts.tolist() == microbatch.count_targets(batch).tolist()
    assert len(counts) == (2 if size == "tiny" else 1)
    assert (batch.segments is None) == (size != "tiny")
    # Close to knowing nothing, before anything is learned.
    assert (sums / counts).sum().item() == pytest.approx(task.chance(), rel=0.05)


def test_metrics_match_hand_computation(source, tmp_path):
    task = load(config_of(source), tmp_path)
    model = build(task.config.model, seed=3)
    found = task.evaluate(model).figures
    model.eval()
    nats, right, hidden, sentence, follows, pairs = 0.0, 0, 0, 0.0, 0, 0
    with torch.inference_mode():
        for step in range(task.validation.steps_per_epoch):
            batch = task.validation.batch(step)
            words, labels = model(
                *(
                    torch.from_numpy(each)
                    for each in (batch.tokens, batch.attention_mask, batch.segments)
                )
            )
            for row, place in zip(*np.nonzero(batch.targets != IGNORE), strict=True):
                target = batch.targets[row, place]
                nats -= float(words[row, place].log_softmax(-1)[target])
                right += int(words[row, place].argmax()) == target
                hidden += 1
            for row, label in enumerate(batch.labels):
                sentence -= float(labels[row].log_softmax(-1)[label])
                follows += int(labels[row].argmax()) == label
                pairs += 1
    assert found["masked_loss"] == pytest.approx(nats / hidden, rel=1e-5)
    assert found["masked_accuracy"] == pytest.approx(right / hidden)
    assert found["next_sentence_accuracy"] == pytest.approx(follows / pairs)
    assert found["loss"] == pytest.approx(nats / hidden + sentence / pairs, rel=1e-5)
    assert measure(model, task.validation).rows == pairs
    assert found == task.evaluate(model).figures  # the same places, every time


def test_whole_word_masking_in_batches(source, tmp_path):
    config = config_of(source)
    masking = Masking(unit="words", rate=0.3)
    config = replace(config, data=replace(config.data, masking=masking, vocabulary=64))
    task = load(config, tmp_path)
    continues = task.tokenizer.is_continuation()
    checked = 0
    for step in range(5):
        batch = task.batches.batch(step)
        hidden = batch.targets != IGNORE
        original = np.where(hidden, batch.targets, batch.tokens)
        # Except where a part begins in the middle of a word, whose start is missing.
        inside = continues[original[:, 1:]] & batch.attention_mask[:, 1:] & (original[:, :-1] > 4)
        checked += inside.sum()
        assert np.array_equal(hidden[:, 1:][inside], hidden[:, :-1][inside])
    assert checked


def test_by_frequency_matches_hand_computation(tmp_path):
    def documents(ids):
        return data.Documents(np.array(ids), np.array([0, len(ids)]), np.array([0, 1]))

    # Counts, with one for each: 3, 2, 1 of 6.
    found = by_frequency(documents([0, 0, 1]), documents([0, 2]), 3)
    assert found == pytest.approx((math.log(2) + math.log(6)) / 2)


def curve(folder):
    clock = {"seconds", "progress"}
    return [
        {k: v for k, v in record.items() if k not in clock}
        for record in metrics.read(folder / "metrics.jsonl")
    ]


def weights(folder):
    return checkpoint.newest(folder / "checkpoints", print).tensors("model.safetensors")


def same_run(one, other):
    assert curve(one) == curve(other)
    for name, value in weights(one).items():
        assert value.equal(weights(other)[name]), name


def start(config, folder, **more):
    return Run(config, folder, DataFolders(cache=folder.parent / "cache"), **more)


@pytest.mark.parametrize("size", ["tiny", "tiny-masked"])
def test_run_improves_and_resumed_run_equals_uninterrupted(source, tmp_path, size):
    config = config_of(source, size)
    whole, part = tmp_path / "whole", tmp_path / "part"
    events = list(start(config, whole).events())
    figures = [event.figures for event in events if isinstance(event, Evaluation)]
    assert figures[-1]["masked_loss"] < figures[0]["masked_loss"] - 0.1
    assert ("next_sentence_accuracy" in figures[0]) == (size == "tiny")
    run = start(config, part)
    list(run.events(lambda: run.state.step >= 5))
    torch.rand(3)
    list(start(config, part, resume=True).events())
    same_run(part, whole)


KILLED = """
import json, os, signal, sys
from pathlib import Path
from clearformer.config import run_from_json
from clearformer.data import DataFolders
from clearformer.runs.run import Run
config = run_from_json(json.loads(Path(sys.argv[1]).read_text()))
folder = Path(sys.argv[2])
run = Run(config, folder, DataFolders(cache=folder.parent / "cache"), resume=True)
for event in run.events():
    if run.state.step >= 7:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_run_resumes_bitwise(source, tmp_path):
    config = config_of(source, accumulation_steps=2)
    whole, killed, settings = tmp_path / "whole", tmp_path / "killed", tmp_path / "run.json"
    list(start(config, whole).events())
    settings.write_text(json.dumps(to_json(config)))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(settings), str(killed)], capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    list(start(config, killed, resume=True).events())
    same_run(killed, whole)


def test_accumulation_changes_only_rounding(source, tmp_path):
    def losses(accumulate):
        config = config_of(source, steps=4, accumulation_steps=accumulate)
        quiet = replace(config.model, dropout=replace(config.model.dropout, embedding=0.0,
                                                      attention=0.0, residual=0.0))  # fmt: skip
        events = start(replace(config, model=quiet), tmp_path / str(accumulate)).events()
        return [event.loss for event in events if isinstance(event, Step)]

    assert losses(1) == pytest.approx(losses(4), rel=1e-4)
