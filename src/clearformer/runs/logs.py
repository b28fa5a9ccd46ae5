"""Logs for other tools: the rows of metrics.jsonl as scalars with the usual names.

A log is a copy. When a run starts or resumes, the rows that count so far are written again from
metrics.jsonl, so that no point is missing or there twice. A writer that fails is noted once and
left out; the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from clearformer.runs import metrics
from clearformer.training.events import Evaluation, Event, Skipped, Step

Say = Callable[[str], None]
# Scalars of a step, by their names in metrics.jsonl.
STEP_NAMES = {"train_loss": "loss/train", "learning_rate": "lr", "gradient_norm": "grad_norm"}


class Writer(Protocol):
    """Writes scalars for one tool."""

    def write(self, step: int, scalars: Mapping[str, float], seconds: float) -> None:
        """Add the scalars of a step; `seconds` is the time of training until then."""

    def close(self) -> None: ...


class Scalars:
    """Turns rows into scalars; it remembers the last step, for the throughput."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._targets = 0.0
        self._last: dict[str, int] = {}  # by event: the last step that was written

    def of(self, row: Mapping[str, Any]) -> dict[str, float]:
        """The scalars of a normalized row; none for a row that was seen, or has no numbers."""
        event, step = row["event"], row.get("step", 0)
        if event not in READERS or step <= self._last.get(event, -1):
            return {}  # a resume repeats the evaluation of its checkpoint
        self._last[event] = step
        return READERS[event](self, row)

    def _of_step(self, row: Mapping[str, Any]) -> dict[str, float]:
        found = {theirs: float(row[name]) for name, theirs in STEP_NAMES.items() if name in row}
        seconds, counted = float(row.get("seconds", 0.0)), metrics.targets(row)
        if counted is not None:
            name, targets = counted[0], float(counted[1])
            passed = seconds - self.seconds
            if passed > 0:
                found[f"{name}_per_second"] = (targets - self._targets) / passed
            found[name] = self._targets = targets
        self.seconds = seconds
        return found

    def _of_evaluation(self, row: Mapping[str, Any]) -> dict[str, float]:
        prefix = metrics.VALIDATION
        return {
            f"{name.removeprefix(prefix)}/validation": float(value)
            for name, value in row.items()
            if name.startswith(prefix)
        }

    def _of_skipped(self, row: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(row[name]) for name in ("scale", "skipped") if name in row}


READERS: Mapping[str, Callable[[Scalars, Mapping[str, Any]], dict[str, float]]] = {
    "step": Scalars._of_step,
    "evaluation": Scalars._of_evaluation,
    "skipped": Scalars._of_skipped,
}


class Logs:
    """The writers of a run; one that fails is left out."""

    def __init__(self, writers: Mapping[str, Callable[[], Writer]], counted: str, say: Say) -> None:
        self._say, self._counted = say, counted
        self._scalars = Scalars()
        self._writers: dict[str, Writer] = {}
        for name, make in writers.items():
            try:
                self._writers[name] = make()
            except Exception as problem:
                self._drop(name, problem)

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows of metrics.jsonl."""
        for row in rows:
            scalars = self._scalars.of(row)
            if scalars:
                self._write(row["step"], scalars)

    def event(self, event: Event) -> None:
        """Write an event of a run."""
        match event:
            case Step():
                self.rows([metrics.step_row(event, self._counted)])
            case Evaluation():
                self.rows([metrics.evaluation_row(event)])
            case Skipped():
                self.rows([{"event": "skipped", **vars(event)}])

    def close(self) -> None:
        for name, writer in list(self._writers.items()):
            self._try(name, writer.close)

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        seconds = self._scalars.seconds
        for name, writer in list(self._writers.items()):
            self._try(name, partial(writer.write, step, scalars, seconds))

    def _try(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as problem:
            self._drop(name, problem)

    def _drop(self, name: str, problem: Exception) -> None:
        self._writers.pop(name, None)
        reason = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
        self._say(f"note: the log for {name} failed and is left out from here on: {reason:.200}")


def saved_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows in a run's metrics.jsonl that count; none if it is new."""
    return metrics.read(folder / "metrics.jsonl")


def seconds_of(rows: Sequence[Mapping[str, Any]]) -> float:
    """The seconds of training in these rows."""
    return max((float(row.get("seconds", 0.0)) for row in rows), default=0.0)
