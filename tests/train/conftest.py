"""A generator small enough for many steps."""

from dataclasses import replace

import pytest

from clearformer.build import build
from clearformer.config import TrainConfig
from clearformer.families import generator, modern


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
