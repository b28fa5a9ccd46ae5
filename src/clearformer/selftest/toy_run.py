"""A tiny training run with dropout that saves at every step, for the checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clearformer.runs import checkpoint, metrics
from clearformer.selftest import processes
from clearformer.selftest.processes import Child, require

TEXT = "the cat sat on the mat, and the dog sat on the log.\n" * 60
FLAGS = (
    "modern-tiny --layers 1 --width 16 --heads 2 --key-heads 1 --model.hidden 32 --length 16 "
    "--batch-size 4 --model.dropout.residual 0.1 --evaluations 2 --save-seconds 0 --threads 1 "
    "--precision float32 --quiet --resume"
)
CLOCK = {"seconds", "progress"}  # fields that depend on the clock


class ToyRun:
    """The same run in any number of folders."""

    def __init__(self, workdir: Path, steps: int, seed: int = 0, more: str = "") -> None:
        self.workdir, self.steps = workdir, steps
        self.text = workdir / "text.txt"
        self.text.write_text(TEXT)
        self.flags = [*FLAGS.split(), "--steps", str(steps), "--seed", str(seed), *more.split()]

    def arguments(self, folder: Path) -> list[str]:
        return ["train", *self.flags, "--data", str(self.text), "--out", str(folder)]

    def start(self, folder: Path, **environment: str) -> Child:
        where = {"XDG_CACHE_HOME": str(self.workdir / "cache"), **environment}
        return Child(self.arguments(folder), folder.with_suffix(".log"), where)

    def finish(self, folder: Path) -> None:
        """Run or resume to the end."""
        child = self.start(folder)
        code = child.wait(10 * processes.TIMEOUT)
        require(code == 0, f"a run failed with exit code {code}: {child.output()[-300:]}")


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint; a damaged one is a missed goal."""
    messages: list[str] = []
    newest = checkpoint.newest(folder / "checkpoints", messages.append)
    require(not messages, f"a checkpoint was lost: {messages[:1]}")
    return -1 if newest is None else newest.step


def fingerprint(folder: Path) -> dict[str, Any]:
    """All that must be bitwise the same: weights, optimizer, random generators, the curve."""
    newest = checkpoint.newest(folder / "checkpoints", print)
    assert newest is not None
    files = {
        name: entry["sha256"]
        for name, entry in newest.manifest["files"].items()
        if name.endswith(".safetensors")
    }
    curve = [
        {key: value for key, value in record.items() if key not in CLOCK}
        for record in metrics.read(folder / "metrics.jsonl")
    ]
    return {"step": newest.step, **files, "curve": json.dumps(curve)}


def require_same(folder: Path, reference: Path) -> None:
    one, other = fingerprint(folder), fingerprint(reference)
    differing = [name for name in other if one.get(name) != other[name]]
    require(not differing, f"not bitwise the same as the uninterrupted run: {differing}")


def last_record(folder: Path) -> dict[str, Any]:
    return metrics.read(folder / "metrics.jsonl")[-1]
