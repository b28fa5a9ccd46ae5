"""Fixtures: a tiny run, how to start it, and comparison of two runs."""

from dataclasses import replace

import pytest

from clearformer.config import (
    DataConfig,
    RunConfig,
    StableThenDecay,
    TrainConfig,
)
from clearformer.data import DataFolders
from clearformer.families import modern
from clearformer.runs import checkpoint, metrics
from clearformer.runs.run import Run

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
            learning_rate=1e-2,
            batch_size=4,
            steps=12,
            evaluations=3,
            threads=1,
            precision="float32",
            schedule=StableThenDecay(warmup=3),
        ),
    )


@pytest.fixture(scope="session")
def start():
    def start(config, folder, **more):
        return Run(config, folder, DataFolders(cache=folder.parent / "cache"), **more)

    return start


@pytest.fixture(scope="session")
def curve():
    def curve(folder):
        """Everything in metrics.jsonl that does not depend on the clock."""
        clock = {"seconds", "progress"}
        return [
            {k: v for k, v in record.items() if k not in clock}
            for record in metrics.read(folder / "metrics.jsonl")
        ]

    return curve


@pytest.fixture(scope="session")
def final():
    def final(folder):
        return checkpoint.newest(folder / "checkpoints", print).tensors("model.safetensors")

    return final


@pytest.fixture(scope="session")
def same_run(curve, final):
    def same_run(one, other):
        assert curve(one) == curve(other)
        for name, value in final(one).items():
            assert value.equal(final(other)[name]), name

    return same_run


@pytest.fixture
def whole(config, tmp_path, start):
    folder = tmp_path / "whole"
    return folder, list(start(config, folder).events())
