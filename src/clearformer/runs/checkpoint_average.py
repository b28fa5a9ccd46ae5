"""Average of the last checkpoints of a run, as in section 6.1 of the original paper.

Near the end of training the weights oscillate around a minimum, and their mean is closer to it. An
EMA (`--train.ema-decay`) averages during training; this needs only the last checkpoints
(`--train.keep-checkpoints`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from clearformer.config import run_from_json, to_json
from clearformer.runs import checkpoint
from clearformer.runs.checkpoint import Checkpoint
from clearformer.runs.load import has_adapter, require_floats


def last_checkpoints(run: Path, last: int) -> list[Checkpoint]:
    """The newest `last` checkpoints of a run, verified, the newest first."""
    if last < 1:
        raise ValueError(f"--last is {last}, but it must be at least 1")
    steps = checkpoint.numbered(run / "checkpoints")
    if not steps:
        raise ValueError(f"{run} is not a run: it has no checkpoints")
    if len(steps) < last:
        raise ValueError(
            f"{run} has {len(steps)} checkpoints, but --last is {last}: use a smaller number, or "
            f"train with --train.keep-checkpoints {last}"
        )
    return [checkpoint.verify_in_run(path) for _, path in reversed(steps[-last:])]


def mean(checkpoints: list[Checkpoint]) -> dict[str, Tensor]:
    """The mean of each weight over the checkpoints, computed in float64."""
    totals: dict[str, Tensor] = {}
    for each in checkpoints:
        for name, value in each.tensors("model.safetensors").items():
            totals[name] = totals.get(name, torch.zeros((), dtype=torch.float64)) + value.double()
    like = checkpoints[0].tensors("model.safetensors")
    return {name: (total / len(checkpoints)).to(like[name]) for name, total in totals.items()}


def average(run: Path, last: int, out: Path) -> Checkpoint:
    """Write a run with a single checkpoint: the mean of the last ones of `run`."""
    if os.path.lexists(out / "checkpoints"):
        raise ValueError(f"{out} already holds a run: choose another --out")
    checkpoints = last_checkpoints(run, last)
    for each in checkpoints:
        require_floats(each)
        if has_adapter(each):
            raise ValueError(
                f"{each.folder} holds an adapter, and the mean of two factors is not that of their "
                f"products: use the run as it is, or train with --train.ema-decay"
            )
    newest = checkpoints[0]
    config = run_from_json(newest.json("config.json"))
    # The weights are an average already, so there is no EMA to use instead.
    config = replace(config, train=replace(config.train, ema_decay=None))
    documents = {
        "state.json": {**newest.json("state.json"), "best": None},
        "config.json": to_json(config),
        "tokenizer.json": newest.json("tokenizer.json"),
    }
    weights = mean(checkpoints)
    out.mkdir(parents=True, exist_ok=True)
    facts = {**newest.facts, "averaged": [each.step for each in checkpoints]}
    return checkpoint.write_run(out, newest.step, {"model.safetensors": weights}, documents, facts)
