"""The run that is killed, stopped and starved: tiny, with dropout, saved at every step."""

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
    "--batch 4 --model.dropout.residual 0.1 --evaluations 2 --save-seconds 0 --threads 1 "
    "--precision float32 --quiet --resume"
)
CLOCK = {"seconds", "progress"}  # what depends on the clock


class ToyRun:
    """The same run in as many folders as one likes."""

    def __init__(self, place: Path, steps: int, seed: int = 0, more: str = "") -> None:
        self.place, self.steps = place, steps
        self.text = place / "text.txt"
        self.text.write_text(TEXT)
        self.flags = [*FLAGS.split(), "--steps", str(steps), "--seed", str(seed), *more.split()]

    def words(self, folder: Path) -> list[str]:
        return ["train", *self.flags, "--data", str(self.text), "--out", str(folder)]

    def start(self, folder: Path, **environment: str) -> Child:
        where = {"XDG_CACHE_HOME": str(self.place / "cache"), **environment}
        return Child(self.words(folder), folder.with_suffix(".log"), where)

    def finish(self, folder: Path) -> None:
        """Run, or go on, to the end."""
        child = self.start(folder)
        code = child.wait(10 * processes.PATIENCE)
        require(code == 0, f"a run that should finish left with {code}: {child.said()[-300:]}")


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint that holds; a damaged one is a missed goal."""
    said: list[str] = []
    found = checkpoint.newest(folder / "checkpoints", said.append)
    require(not said, f"a checkpoint was lost: {said[:1]}")
    return -1 if found is None else found.step


def fingerprint(folder: Path) -> dict[str, Any]:
    """What must be the same bit for bit: weights, optimizer, generators, and the whole curve."""
    found = checkpoint.newest(folder / "checkpoints", print)
    assert found is not None
    files = {
        name: about["sha256"]
        for name, about in found.manifest["files"].items()
        if name.endswith(".safetensors")
    }
    curve = [
        {key: value for key, value in record.items() if key not in CLOCK}
        for record in metrics.read(folder / "metrics.jsonl")
    ]
    return {"step": found.step, **files, "curve": json.dumps(curve)}


def require_same(folder: Path, reference: Path) -> None:
    one, other = fingerprint(folder), fingerprint(reference)
    differing = [name for name in other if one.get(name) != other[name]]
    require(not differing, f"not bit for bit the run that nobody disturbed: {differing}")


def end_line(folder: Path) -> dict[str, Any]:
    return metrics.read(folder / "metrics.jsonl")[-1]
