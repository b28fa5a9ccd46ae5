"""Throughput: measured on the model itself if that takes seconds, else on a reduced model."""

from dataclasses import replace

import pytest

from clearformer.config import DataConfig, Full, Local, RunConfig, TrainConfig
from clearformer.plan import footprint, throughput


@pytest.fixture
def config(small):
    return RunConfig(
        model=small("gpt2", layers=4),
        data=DataConfig(source="x"),
        train=TrainConfig(learning_rate=1e-3, batch_size=4, steps=1, precision="float32"),
    )


@pytest.fixture(autouse=True)
def in_a_moment(monkeypatch):
    monkeypatch.setattr(throughput, "SECONDS", 0.1)


def test_small_model_is_measured_directly(config, monkeypatch):
    monkeypatch.setattr(throughput, "_matmul_rate", lambda: 1e12)
    counted = footprint.footprint(config, 4, None, accumulated=False)
    found = throughput.measure(config, 4, None, counted)
    assert found.whole
    assert 1e4 < found.rate < 1e14
    one, two = (found.seconds(counted, parts) for parts in (1, 2))
    assert 0 < one < two


@pytest.fixture
def timed(monkeypatch):
    """A machine on which a layer takes a second for a sequence, the rest two; its update ten."""
    measured = []

    def times(config, rows, recomputed, pair_lengths, seconds):
        model = config.model
        layers = model.layers + getattr(model, "decoder_layers", 0)
        measured.append((layers, model.length, rows))
        return (layers + 2.0) * rows, 10.0 * layers

    monkeypatch.setattr(throughput, "_step_seconds", times)
    return measured


def test_large_model_is_measured_with_fewer_layers(config, monkeypatch, timed):
    large = replace(config, model=replace(config.model, layers=40))
    counted = footprint.footprint(large, 8, None, accumulated=False)
    monkeypatch.setattr(
        throughput, "_matmul_rate", lambda: 8 * counted.operations / throughput.SECONDS / 9.9
    )
    found = throughput.measure(large, 8, None, counted)
    length = config.model.length
    assert timed == [(1, length, 8), (4, length, 8)]
    assert not found.whole
    # The rest is there once, not ten times.
    assert found.seconds(counted, 1) == pytest.approx(42 * 8 + 400, rel=1e-6)
    assert found.seconds(counted, 2) == pytest.approx(2 * 42 * 8 + 400, rel=1e-6)


def test_reduced_layers_keep_whole_pattern_cycles(config, monkeypatch, timed):
    two = (Full(), Local(window=4))
    large = replace(config, model=replace(config.model, layers=40, patterns=two))
    counted = footprint.footprint(large, 2, None, accumulated=False)
    monkeypatch.setattr(
        throughput, "_matmul_rate", lambda: 8 * counted.operations / throughput.SECONDS / 5.9
    )
    throughput.measure(large, 2, None, counted)
    assert [layers for layers, _, _ in timed] == [2, 6]


def test_reduces_encoder_and_decoder(small, monkeypatch, timed):
    config = RunConfig(
        model=replace(small("original"), layers=8, decoder_layers=8),
        data=DataConfig(source="x"),
        train=TrainConfig(learning_rate=1e-3, batch_size=4, steps=1, precision="float32"),
    )
    counted = footprint.footprint(config, 4, None, accumulated=False)
    monkeypatch.setattr(
        throughput, "_matmul_rate", lambda: 8 * counted.operations / throughput.SECONDS / 2.5
    )
    found = throughput.measure(config, 4, None, counted)
    assert [layers for layers, _, _ in timed] == [2, 6]
    assert found.seconds(counted, 1) == pytest.approx(18 * 4 + 160, rel=1e-6)


def test_huge_model_is_measured_with_fewer_and_shorter_sequences(config, monkeypatch, timed):
    large = replace(config, model=replace(config.model, layers=40, length=600))
    counted = footprint.footprint(large, 8, None, accumulated=False)
    monkeypatch.setattr(throughput, "_matmul_rate", lambda: 1.0)
    found = throughput.measure(large, 8, None, counted)
    assert timed == [(1, 256, 1), (2, 256, 1)]
    # As much work for each second.
    assert found.seconds(counted, 1) > 8 * 42


def test_prefers_longer_measurement_to_shorter_sequences(config, monkeypatch, timed):
    large = replace(config, model=replace(config.model, layers=40, length=600))
    counted = footprint.footprint(large, 1, None, accumulated=False)
    monkeypatch.setattr(
        throughput, "_matmul_rate", lambda: 8 * counted.operations / throughput.SECONDS / 60
    )
    throughput.measure(large, 1, None, counted)
    assert timed == [(1, 600, 1), (2, 600, 1)]  # three times as much as it should be


def test_noisy_measurement_falls_back_to_operations(config, monkeypatch):
    large = replace(config, model=replace(config.model, layers=40))
    counted = footprint.footprint(large, 8, None, accumulated=False)
    times = iter([(9.0, 9.0), (6.0, 6.0)])
    monkeypatch.setattr(throughput, "_step_seconds", lambda *given: next(times))
    monkeypatch.setattr(throughput, "_matmul_rate", lambda: 1.0)
    found = throughput.measure(large, 8, None, counted)
    assert found.seconds(counted, 1) > 8 * 6  # of one sequence and two layers it is 6
