"""Fitting a run to memory: settings it may change, and settings kept on resume."""

from dataclasses import replace

import pytest

from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.data import DataFolders
from clearformer.plan import planner
from clearformer.plan.fit import FITS_EASILY, fit_to_memory
from clearformer.training import malloc


@pytest.fixture(autouse=True)
def this_process(monkeypatch):
    monkeypatch.setattr(planner, "base_bytes", lambda: 100 * 10**6)
    monkeypatch.setattr(malloc, "limit_fragmentation", lambda: True)


@pytest.fixture
def config(small):
    return RunConfig(
        model=small("gpt2", layers=4, width=64, hidden=256, length=512, vocabulary=50),
        data=DataConfig(source="x"),
        train=TrainConfig(learning_rate=1e-3, batch_size=8, steps=1, precision="float32"),
    )


def test_fit_respects_and_reports_limit(config):
    said = []
    tight = fit_to_memory(config, "150MB", DataFolders(), said.append)
    assert tight.train.accumulation_steps > 1
    assert said[0].startswith("note: to fit into 150MB: ")
    assert tight.model == config.model
    said.clear()
    assert fit_to_memory(config, "99GB", DataFolders(), said.append).train == config.train
    assert said[-1] == f"note: {FITS_EASILY}"


def test_resumed_run_keeps_fitted_settings(config):
    saved = replace(config, train=replace(config.train, accumulation_steps=4, recompute=1))
    said = []
    resumed = fit_to_memory(config, "1GB", DataFolders(), said.append, saved)
    assert (resumed.train.accumulation_steps, resumed.train.recompute) == (4, 1)
    assert said == []
