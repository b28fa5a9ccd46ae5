"""Runs in a folder, with their figures; and two runs side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearformer.config import RunConfig, to_json
from clearformer.runs.metrics import VALIDATION, read
from clearformer.runs.resume import differences
from clearformer.runs.start import saved_config

MAX_DEPTH = 4  # folders below the given one
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class RunSummary:
    """What a run is and what it reached; `problem` says why it cannot be read."""

    folder: Path
    config: RunConfig | None = None
    step: int = 0
    status: str = "unfinished"
    figures: dict[str, float] = field(default_factory=dict)  # of the last evaluation
    seconds: float = 0.0
    losses: tuple[tuple[int, float], ...] = ()  # validation loss by step
    problem: str = ""

    def document(self) -> dict[str, object]:
        config = self.config
        known = {} if config is None else {"model": config.model.name, "data": config.data.source}
        return {
            "run": str(self.folder),
            **known,
            "step": self.step,
            "status": self.problem or self.status,
            "seconds": round(self.seconds, 3),
            "figures": self.figures,
        }


def find_runs(folder: Path) -> list[RunSummary]:
    """Every run in a folder and its subfolders, by path."""
    return [summarize(each) for each in sorted(_run_folders(folder, MAX_DEPTH))]


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / "config.json").is_file() and (folder / "metrics.jsonl").is_file():
        yield folder
        return
    if not depth:
        return
    try:
        inside = [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]
    except OSError:
        return
    for each in inside:
        if not each.name.startswith("."):
            yield from _run_folders(each, depth - 1)


def summarize(folder: Path) -> RunSummary:
    """The summary of one run; a damaged one has a `problem`."""
    try:
        config = saved_config(folder)
        rows = read(folder / "metrics.jsonl")
    except (ValueError, OSError) as problem:
        return RunSummary(folder, problem=" ".join(str(problem).split()))
    steps = [row for row in rows if row["event"] == "step"]
    evaluations = [row for row in rows if row["event"] == "evaluation"]
    last = evaluations[-1] if evaluations else {}
    figures = {
        name.removeprefix(VALIDATION): value
        for name, value in last.items()
        if name.startswith(VALIDATION) and _finite(value)
    }
    losses = tuple(
        (row["step"], row[f"{VALIDATION}loss"])
        for row in evaluations
        if _finite(row.get(f"{VALIDATION}loss"))
    )
    ended = rows[-1] if rows and rows[-1]["event"] == "end" else {}
    return RunSummary(
        folder,
        config,
        steps[-1]["step"] if steps else 0,
        str(ended.get("reason", "unfinished")),
        figures,
        float(steps[-1].get("seconds", 0.0)) if steps else 0.0,
        losses,
    )


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def sparkline(values: Sequence[float]) -> str:
    """A curve in one line of characters, lowest to highest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in values)


@dataclass(frozen=True)
class RunComparison:
    """The settings in which two runs differ, and what both reached."""

    first: RunSummary
    second: RunSummary
    settings: tuple[tuple[str, object, object], ...]  # path, in the first, in the second

    @property
    def figures(self) -> list[tuple[str, float | None, float | None]]:
        names = dict.fromkeys([*self.first.figures, *self.second.figures])
        return [
            (name, self.first.figures.get(name), self.second.figures.get(name)) for name in names
        ]

    def document(self) -> dict[str, object]:
        return {
            "runs": [self.first.document(), self.second.document()],
            "settings": [
                {"setting": path, "first": one, "second": other}
                for path, one, other in self.settings
            ],
            "validation_loss": [list(self.first.losses), list(self.second.losses)],
        }


def compare_runs(first: Path, second: Path) -> RunComparison:
    """The differences of two runs; ValueError if one cannot be read."""
    found = []
    for folder in (first, second):
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} is not a run: it has no config.json")
        summary = summarize(folder)
        if summary.problem or summary.config is None:
            raise ValueError(summary.problem or f"{folder} has no config.json")
        found.append(summary)
    old, new = (to_json(each.config) for each in found)
    return RunComparison(found[0], found[1], tuple(differences(old, new)))
