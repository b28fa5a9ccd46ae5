"""Average of the last checkpoints of a run, as in section 6.1 of the original paper.

Near its end training moves around a good place and not towards it; the mean of where it has
been is nearer. A running average (`--train.ema-decay`) does the same while training, in one number;
this needs nothing but the checkpoints, `--train.keep-checkpoints` of them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from clearformer import safe_files
from clearformer.config import run_from_json, to_json
from clearformer.runs import checkpoint
from clearformer.runs.checkpoint import Checkpoint
from clearformer.runs.load import require_floats


def last_checkpoints(run: Path, last: int) -> list[Checkpoint]:
    """The newest `last` checkpoints of a run, the newest first; each is known to hold."""
    if last < 1:
        raise ValueError(f"the last {last} checkpoints are wanted, but it must be at least 1")
    found = checkpoint.numbered(run / "checkpoints")
    if not found:
        raise ValueError(f"{run} is no run: it has no checkpoints")
    if len(found) < last:
        raise ValueError(
            f"{run} has {len(found)} checkpoints, but the last {last} are wanted: ask for fewer, "
            f"or train with --train.keep-checkpoints {last}"
        )
    return [checkpoint.verify_in_run(path) for _, path in reversed(found[-last:])]


def mean(checkpoints: list[Checkpoint]) -> dict[str, Tensor]:
    """Each weight as the mean over the checkpoints, added up in double precision."""
    totals: dict[str, Tensor] = {}
    for each in checkpoints:
        for name, value in each.tensors("model.safetensors").items():
            totals[name] = totals.get(name, torch.zeros((), dtype=torch.float64)) + value.double()
    like = checkpoints[0].tensors("model.safetensors")
    return {name: (total / len(checkpoints)).to(like[name]) for name, total in totals.items()}


def average(run: Path, last: int, out: Path) -> Checkpoint:
    """Write a run whose one checkpoint has the mean weights of the last ones of `run`."""
    if os.path.lexists(out / "checkpoints"):
        raise ValueError(f"{out} already holds a run: choose another --out")
    several = last_checkpoints(run, last)
    for each in several:
        require_floats(each)
    newest = several[0]
    config = run_from_json(newest.json("config.json"))
    # The weights are an average already, and are to be used as they are.
    config = replace(config, train=replace(config.train, ema_decay=None))
    facts = {
        name: value
        for name, value in newest.manifest.items()
        if name not in ("format", "step", "files")
    }
    documents = {
        "state.json": {**newest.json("state.json"), "best": None},
        "config.json": to_json(config),
        "tokenizer.json": newest.json("tokenizer.json"),
    }
    weights = mean(several)
    out.mkdir(parents=True, exist_ok=True)
    written = checkpoint.write(
        out / "checkpoints",
        newest.step,
        {"model.safetensors": weights},
        documents,
        {**facts, "averaged": [each.step for each in several]},
    )
    for name in ("config.json", "tokenizer.json"):
        safe_files.replace(out / name, checkpoint.as_text(documents[name]).encode())
    return written
