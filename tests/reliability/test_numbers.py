"""F19, F20 and F26 on the command line; F18, F22 and F23 are tested beside their code."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch._inductor.exc import InvalidCxxCompiler

from clearformer.core.heads import IGNORE
from clearformer.runs import checkpoint
from clearformer.runs.faults import VARIABLE
from clearformer.selftest.toy_run import last_record, newest_step
from clearformer.tasks import next_token
from clearformer.training import step


def test_f19_nan_loss_stops_before_update(train, place, monkeypatch):
    monkeypatch.setenv(VARIABLE, "nan@5")
    outcome = train(steps=8)
    assert outcome.code == 3
    assert outcome.clean
    for words in (
        "step 5: the loss is nan",
        "the gradient norm nan",
        "the learning rate",
        "samples",
    ):
        assert words in outcome.err
    assert last_record(place / "run") == {"event": "end", "step": 4, "reason": "error", "exit": 3}
    found = checkpoint.newest(place / "run/checkpoints", print)
    assert found.step == 4
    assert all(torch.isfinite(t).all() for t in found.tensors("model.safetensors").values())


def test_f19_non_finite_weights_are_never_saved(train, place, monkeypatch):
    # The gradient is finite, and the update is not: as with a rate far too large.
    after = step.train_step

    def spoiling(loss, parameters, *others):
        parameters = list(parameters)
        outcome = after(loss, parameters, *others)
        with torch.no_grad():
            parameters[0].view(-1)[0] = float("inf")
        return outcome

    monkeypatch.setattr(step, "train_step", spoiling)
    outcome = train(steps=6)
    assert outcome.code == 3, outcome.err
    assert outcome.clean
    assert (
        "step 4: the update made weights NaN or infinite (last checkpoint: step 3 is" in outcome.err
    )
    assert last_record(place / "run")["exit"] == 3
    found = checkpoint.newest(place / "run/checkpoints", print)
    assert found.step == 3
    assert all(torch.isfinite(t).all() for t in found.tensors("model.safetensors").values())


def test_f19_nan_metric_is_never_best(train, place, monkeypatch):
    evaluate = next_token.Stream.evaluate

    def none_at_first(self, model, calls=[]):  # noqa: B006
        calls.append(1)
        found = evaluate(self, model)
        nothing = dict.fromkeys(found.figures, math.nan)
        return replace(found, figures=nothing) if len(calls) == 1 else found

    monkeypatch.setattr(next_token.Stream, "evaluate", none_at_first)
    outcome = train("--evaluations", "2", folder="fresh", steps=4)
    assert outcome.code == 0, outcome.err
    lines = map(json.loads, (place / "fresh/metrics.jsonl").read_text().splitlines())
    seen = [(r["validation_loss"] == "nan", r["best"]) for r in lines if r["event"] == "evaluation"]
    assert seen == [(True, False), (False, True)]
    assert (place / "fresh/loss.png").exists()


def test_failed_loss_plot_is_a_note(train, place):
    path = place / "run/metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "no record", *lines[1:]]) + "\n")
    outcome = train(steps=4)
    assert outcome.code == 0, outcome.err
    assert "note: its curve or its card could not be written:" in outcome.err
    assert "line 2 is not a JSON object" in outcome.err
    assert newest_step(place / "run") == 4


def test_f20_batch_without_targets_is_counted_and_skipped(train, place, monkeypatch):
    batch = next_token.Stream.batch

    def sometimes_empty(self, step):
        found = batch(self, step)
        if step == 3:
            return replace(found, targets=torch.full_like(found.targets, IGNORE))
        return found

    monkeypatch.setattr(next_token.Stream, "batch", sometimes_empty)
    outcome = train(steps=5)
    assert outcome.code == 0, outcome.err
    assert "note: 1 steps had no target and changed nothing" in outcome.err
    assert newest_step(place / "run") == 5


@pytest.mark.parametrize("folder", ["compiled"])
def test_f26_run_continues_if_compile_fails(train, place, monkeypatch, folder):
    def no_compiler(function):
        def compile_now(*arguments):
            raise InvalidCxxCompiler

        return compile_now

    monkeypatch.setattr(torch, "compile", no_compiler)
    outcome = train("--compile", "on", folder=folder)
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("note: torch.compile failed") == 1
    one, other = (
        checkpoint.newest(place / each / "checkpoints", print).tensors("model.safetensors")
        for each in (folder, "run")
    )
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)
