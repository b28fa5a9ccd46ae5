"""Training steps of a run: accumulation, compilation, and NaN traced to its module."""

from dataclasses import replace

import pytest
import torch

from clearformer.runs import metrics
from clearformer.runs.trainer import should_compile
from clearformer.training.events import Saved, Step
from clearformer.training.step import NonFiniteError


def test_nan_loss_names_module(config, tmp_path, start, final):
    folder = tmp_path / "broken"
    run = start(config, folder)
    events = run.events()
    for event in events:
        if isinstance(event, Saved):
            break
    with torch.no_grad():
        run.model.stack.blocks[1].feed_forward.up.weight[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match=r"step 5: the loss is nan.*blocks.1.feed_forward.up"):
        list(events)
    assert metrics.read(folder / "metrics.jsonl")[-1]["exit"] == 3
    assert all(torch.isfinite(value).all() for value in final(folder).values())


def test_accumulation_changes_only_rounding(config, tmp_path, start):
    def losses(accumulate):
        quiet = replace(config.model, dropout=replace(config.model.dropout, residual=0.0))
        train = replace(config.train, accumulation_steps=accumulate, steps=4)
        changed = replace(config, model=quiet, train=train)
        events = start(changed, tmp_path / str(accumulate)).events()
        return [event.loss for event in events if isinstance(event, Step)]

    assert losses(1) == pytest.approx(losses(4), rel=1e-4)


def test_should_compile_depends_only_on_config(config, tmp_path, monkeypatch, start):
    def compiles(**changed):
        train = replace(config.train, **{"steps": None, **changed})
        return should_compile(start(replace(config, train=train), tmp_path / "run"))

    monkeypatch.setattr(
        "clearformer.training.torch_compile.shutil.which", lambda name: "/usr/bin/c++"
    )
    assert not compiles(steps=5), "a run of seconds"
    assert compiles(steps=10**9)
    assert compiles(minutes=60)
    assert not compiles(minutes=60, compile="off")
    monkeypatch.setattr("clearformer.training.torch_compile.shutil.which", lambda name: None)
    assert not compiles(minutes=60), "there is no compiler"
