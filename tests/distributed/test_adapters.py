"""Adapters over several ranks: replicas and shards learn what one process learns."""

import os
from dataclasses import replace

import pytest
import torch

import clearformer as cf
from clearformer.config import (
    AdamW,
    Constant,
    DataConfig,
    Dropout,
    Origin,
    RunConfig,
    TrainConfig,
    run_from_json,
    to_json,
)
from clearformer.data import DataFolders
from clearformer.distributed import process_group
from clearformer.families import modern
from clearformer.runs import checkpoint, finetune
from clearformer.runs.load import best_checkpoint, open_any
from clearformer.runs.run import Run
from clearformer.training.events import Step

TEXT = "the cat sat on the mat, and the dog sat on the log.\n" * 60


def losses(run):
    return [event.loss for event in run.events() if isinstance(event, Step)]


def ranked(settings, folder):
    """What one of several ranks does: the losses of each config."""
    group = process_group.join(os.environ, timeout=300)
    found = []
    for name, each in settings:
        places = DataFolders(cache=folder / "cache")
        run = Run(run_from_json(each), folder / name, places, say=lambda words: None, group=group)
        found.append(losses(run))
    del run
    group.heartbeat.stop()
    return found


def weights(folder):
    return checkpoint.newest(folder / "checkpoints", print).tensors("adapter.safetensors")


def test_two_ranks_match_a_single_process(tmp_path, several):
    (tmp_path / "text.txt").write_text(TEXT)
    model = replace(modern("tiny"), length=16, layers=2, width=16, hidden=32, heads=2, key_heads=1)
    train = TrainConfig(
        learning_rate=1e-2, batch_size=8, steps=4, evaluations=2, threads=1, precision="float32",
        optimizer=AdamW(epsilon=1e-2), schedule=Constant(), accumulation_steps=2, recompute=1,
    )  # fmt: skip
    data = DataConfig(source=str(tmp_path / "text.txt"))
    config = RunConfig(model=replace(model, dropout=Dropout()), data=data, train=train)
    places = DataFolders(cache=tmp_path / "cache")
    losses(Run(config, tmp_path / "base", places))
    sha256 = finetune.identity(best_checkpoint(tmp_path / "base"))
    config = replace(config, origin=Origin(folder=str(tmp_path / "base"), sha256=sha256))
    adapters = {
        "lora": cf.LoRA(rank=2, targets="q,v,down"),
        "dora": cf.DoRA(rank=2),
        "int8": cf.DoRA(rank=2, base="int8"),
    }
    cases = {
        name: replace(config, train=replace(train, adapter=each)) for name, each in adapters.items()
    }
    expected = {name: losses(Run(each, tmp_path / name, places)) for name, each in cases.items()}
    settings = [
        (f"{name}-{way}", to_json(replace(each, train=replace(each.train, parallel=way))))
        for name, each in cases.items()
        for way in ("ddp", "fsdp2")
    ]
    found = several.run(2, ranked, tmp_path, settings, tmp_path)
    assert found[0] == found[1]
    for (name, _), curve in zip(settings, found[0], strict=True):
        one = name.partition("-")[0]
        assert curve == pytest.approx(expected[one], abs=1e-6), name
        ours, theirs = weights(tmp_path / name), weights(tmp_path / one)
        assert ours.keys() == theirs.keys()
        assert max(float((ours[n] - theirs[n]).abs().max()) for n in ours) < 2e-6, name
        tokens = torch.arange(8)[None]
        models = [open_any(tmp_path / each).model for each in (name, one)]
        assert torch.allclose(models[0](tokens), models[1](tokens), atol=1e-5)
