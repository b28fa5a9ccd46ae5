"""The list of goals, the counts for each level of effort, and the runner."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from clearformer.did_you_mean import nearest
from clearformer.selftest import (
    checkpoint_integrity,
    distributed_runs,
    explorer,
    fault_tolerance,
    fuzz,
    numerics,
    round_trip,
    run_folders,
    untrusted_files,
    user_errors,
)
from clearformer.selftest.processes import Missed, Skipped

Effort = Literal["test", "selftest", "soak"]
EFFORTS = ("test", "selftest", "soak")


@dataclass(frozen=True)
class Goal:
    """A goal, its check, and the arguments of the check for each effort."""

    name: str
    check: Callable[..., str]
    counts: Sequence[Mapping[str, Any]] = ({}, {}, {})  # test, selftest, soak


def _counts(name: str, *numbers: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple({name: number} for number in numbers)


FAMILIES = ("gpt2", "modern-tiny", "generator", "sparse")
KILLS = ({"count": 1, "seeds": 1}, {"count": 20, "seeds": 2}, {"count": 200, "seeds": 3})
CUTS = _counts("cuts", (2, 8), (1, 2, 8), (1, 2, 4, 8))
LINKS = _counts("names", run_folders.FILES[:1], run_folders.FILES[:4], run_folders.FILES)
GOALS = {
    "G1": Goal("kill-proof", fault_tolerance.kills, KILLS),
    "G2": Goal("crash points", fault_tolerance.crash_points),
    "G3": Goal("bitwise resume", fault_tolerance.bitwise, _counts("count", 2, 4, 20)),
    "G4": Goal("signals", fault_tolerance.signals, _counts("count", 1, 8, 100)),
    "G5": Goal("corruption", checkpoint_integrity.corruption, _counts("count", 20, 60, 500)),
    "G6": Goal("disk full", fault_tolerance.full_disk, _counts("count", 1, 3, 20)),
    "G7": Goal("fuzz", fuzz.fuzz, _counts("share", 0.001, 0.05, 1.0)),
    "G8": Goal("pickle", untrusted_files.pickles, _counts("every_verb", 0, 4, 30)),
    "G9": Goal("archives", untrusted_files.archives),
    "G10": Goal("explorer", explorer.routes),
    "G11": Goal("equivalence", numerics.gradients, CUTS),
    "G12": Goal("elastic", distributed_runs.elastic, _counts("kills", 0, 1, 10)),
    "G13": Goal("clean exit", distributed_runs.clean_exit, _counts("count", 1, 4, 40)),
    "G14": Goal("not a number", fault_tolerance.not_a_number, _counts("count", 1, 4, 20)),
    "G15": Goal("round trip", round_trip.round_trip),
    "G16": Goal(
        "old checkpoints", checkpoint_integrity.formats, _counts("newest", False, True, False)
    ),
    "G17": Goal("memory", numerics.memory, _counts("length", 1024, 4096, 4096)),
    "G18": Goal("first errors", user_errors.first_errors, _counts("every", 8, 1, 1)),
    "G19": Goal("device", numerics.float32, _counts("models", FAMILIES[:1], FAMILIES, FAMILIES)),
    "G20": Goal("run folders", run_folders.links, LINKS),
}


@dataclass(frozen=True)
class Result:
    """The outcome of a check."""

    goal: str
    name: str
    outcome: Literal["reached", "missed", "skipped"]
    found: str
    seconds: float


def chosen(only: str | None) -> list[str]:
    """The goals in a list such as `G1,G5`; None means all of them."""
    names = [name.strip().upper() for name in only.split(",")] if only is not None else list(GOALS)
    for name in names:
        if name not in GOALS:
            raise ValueError(f"there is no goal {name!r}: {nearest(name, GOALS)}")
    return names


def attempt(name: str, effort: Effort) -> Result:
    """Check one goal in a temporary folder."""
    goal = GOALS[name]
    began = time.monotonic()
    outcome: Literal["reached", "missed", "skipped"] = "reached"
    with tempfile.TemporaryDirectory(prefix="clearformer-") as workdir:
        try:
            finding = goal.check(Path(workdir), **goal.counts[EFFORTS.index(effort)])
        except Missed as problem:
            outcome, finding = "missed", str(problem)
        except Skipped as reason:
            outcome, finding = "skipped", str(reason)
        except Exception as problem:
            # A check that fails with an error counts as missed, and the others still run.
            outcome, finding = "missed", f"{type(problem).__name__}: {problem!s:.300}"
    return Result(name, goal.name, outcome, finding, time.monotonic() - began)


def attempts(names: Sequence[str], effort: Effort) -> Iterator[Result]:
    for name in names:
        yield attempt(name, effort)
