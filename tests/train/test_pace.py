"""Speed is measured on the model itself if that takes seconds, else on a part of it."""

from dataclasses import replace

import pytest

from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.train import footprint, pace


@pytest.fixture
def config(small):
    return RunConfig(
        model=small("gpt2", layers=4),
        data=DataConfig(source="x"),
        train=TrainConfig(lr=1e-3, batch=4, steps=1, precision="float32"),
    )


@pytest.fixture(autouse=True)
def in_a_moment(monkeypatch):
    monkeypatch.setattr(pace, "SECONDS", 0.1)


def test_a_small_model_is_measured_whole(config, monkeypatch):
    monkeypatch.setattr(pace, "_matmul_rate", lambda: 1e12)
    counted = footprint.footprint(config, 4, None, accumulated=False)
    found = pace.measure(config, 4, None, counted)
    assert found.whole
    assert 1e4 < found.rate < 1e14
    one, two = (found.seconds(counted, parts) for parts in (1, 2))
    assert 0 < one < two


def test_a_large_one_in_part(config, monkeypatch):
    large = replace(config, model=replace(config.model, layers=40, length=600))
    counted = footprint.footprint(large, 8, None, accumulated=False)
    monkeypatch.setattr(pace, "_matmul_rate", lambda: 1.0)
    measured = []

    def times(config, rows, what):
        measured.append((config.model.layers, config.model.length, rows))
        return 1.0, 1.0

    monkeypatch.setattr(pace, "_times", times)
    found = pace.measure(large, 8, None, counted)
    assert measured == [(1, 256, 1)]
    assert not found.whole
    # As much work for each second, so forty layers take about forty times as long and more.
    assert found.seconds(counted, 1) > 8 * 40
