"""Models small enough for many steps."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from clearformer.build import build
from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.data import Places
from clearformer.families import generator, modern, original
from clearformer.train.run import Run


@pytest.fixture
def small_config():
    return replace(generator(), vocabulary=20, length=12, layers=2, width=16, heads=2, hidden=32)


@pytest.fixture
def generator_model(small_config):
    return build(small_config)


@pytest.fixture
def modern_model():
    config = modern("tiny")
    return build(replace(config, vocabulary=20, length=12, layers=2, width=16, hidden=32))


@pytest.fixture
def train_config():
    return TrainConfig(lr=1e-2, batch=8, steps=10)


@pytest.fixture(scope="session")
def trained_translator(tmp_path_factory):
    """A run of an encoder-decoder that spells backwards, with four checkpoints."""
    folder = tmp_path_factory.mktemp("translator")
    words = [f"{a}{b}{c}" for a in "abcdef" for b in "abc" for c in "abcd"]
    (folder / "a.in").write_text("\n".join(words))
    (folder / "a.out").write_text("\n".join(word[::-1] for word in words))
    model = replace(
        original("tiny"), length=16, layers=1, decoder_layers=1, width=16, heads=2, hidden=32
    )
    data = DataConfig(source=f"{folder / 'a.in'},{folder / 'a.out'}", tokenizer="characters")
    train = TrainConfig(lr=1e-2, batch=32, steps=8, evaluations=4, keep=4, threads=1)
    config = RunConfig(model=model, data=data, train=train)
    for _ in Run(config, folder / "run", Places()).events():
        pass
    return folder / "run"


@pytest.fixture
def shared_data():
    """Places with the folder that CLEARFORMER_DATA names; tests that need it skip without."""
    folder = os.environ.get("CLEARFORMER_DATA")
    if not folder:
        pytest.skip("CLEARFORMER_DATA does not name a folder with corpora")
    return Places(folder=Path(folder))
