"""Steps that no memory holds are refused, and nothing else is."""

from dataclasses import replace

import pytest

from clearformer.config import RunConfig
from clearformer.families import preset
from clearformer.families.recipes import recipe
from clearformer.plan import footprint, planner
from clearformer.runs.memory_check import require_room


def config(name="modern-tiny", **train):
    model = preset(name)
    data, usual = recipe(model)
    return RunConfig(model=model, data=data, train=replace(usual, device="cpu", **train))


def test_a_batch_beyond_all_memory_is_refused(monkeypatch):
    monkeypatch.setattr(planner, "available_bytes", lambda: 16 * 10**9)
    absurd = config(batch=131_072)
    with pytest.raises(
        ValueError, match=r"131,072 sequences of .* tokens at a time take more than "
    ):
        require_room(absurd, 131_072)
    require_room(config(), 16)


def test_what_is_unknown_is_not_refused(monkeypatch):
    monkeypatch.setattr(planner, "available_bytes", lambda: None)
    require_room(config(batch=131_072), 131_072)
    monkeypatch.setattr(planner, "available_bytes", lambda: 10**9)
    require_room(config("classifier", batch=131_072), 131_072)  # as many rows as there are


@pytest.mark.parametrize("name", ["modern-tiny", "gpt2-small", "bert-tiny"])
@pytest.mark.parametrize("recompute", [None, "attention", 1])
def test_no_step_that_fits_is_refused(monkeypatch, name, recompute):
    """What the plan counts is always more than what is refused here."""
    one = config(name, recompute=recompute)
    counted = footprint.footprint(one, one.train.batch, recompute, accumulated=False)
    monkeypatch.setattr(planner, "available_bytes", lambda: counted.total)
    require_room(one, one.train.batch)
