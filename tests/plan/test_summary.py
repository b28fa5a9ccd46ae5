"""Figures of a plan, and presets proposed with their plans."""

import pytest

from clearformer.data import DataFolders
from clearformer.families.purposes import read_wish
from clearformer.plan import planner, summary
from clearformer.runs.start import preset_config


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("clearformer.plan.throughput.SECONDS", 0.05)
    monkeypatch.setattr(summary, "QUICK_SECONDS", 0.05)


def test_memory_parts_add_up():
    found = summary.memory_figures(planner.plan(preset_config("modern-tiny")))
    parts = ("weights", "gradients", "optimizer", "average", "activations", "base")
    assert sum(found[part] for part in parts) == found["total"]


def test_work_applies_the_budget_to_the_step():
    plan = planner.plan(preset_config("modern-tiny"))
    found = summary.work(plan, DataFolders())
    assert found.steps == int(60 * plan.config.train.minutes / found.step_seconds)
    assert found.seconds == pytest.approx(found.steps * found.step_seconds)


def test_a_proposal_has_its_figures():
    wish = read_wish("classify short texts, 2 cores, 3 minutes")
    found = summary.propose("classifier-small", wish)
    assert found.length == summary.SHORT
    assert found.memory > 4 * 4 * found.parameters
    assert found.work.steps == int(180 / found.work.step_seconds)
    text = "\n".join(found.lines())
    assert f"{found.parameters:,} parameters" in text
    assert "s a step, measured here" in text
    assert found.document()["work"]["steps"] == found.work.steps
    longer = summary.propose("classifier-small", read_wish("classify texts"))
    assert longer.length == summary.USUAL
