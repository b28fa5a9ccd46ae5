"""Metrics of a run: JSON lines that are appended and never rewritten.

A line is one `write`, so that a kill can tear only the last one; a resumed run cuts it off and
appends the step from which it continues. `read` removes repetitions: after a resume at step N,
earlier rows of later steps do not count.

`metrics.jsonl` has version 2, which its first line says. Every row has an `event`:

    start       version, the deciding metric (`figure`), and what a step `counts`
    step        train_loss, learning_rate, gradient_norm, seconds, progress, and the targets so far
                under the name of what they are: tokens, texts, hidden_tokens or target_tokens
    evaluation  validation_loss and the other metrics, each prefixed by validation_, and
                validation_standard_error, which is that of the deciding metric
    skipped, checkpoint, resume, end

In version 1 a step had no event, `loss` was the name in training and validation, and `tokens` that
of any targets. `normalized` converts rows of either version to version 2, also in a file that was
begun by an earlier version.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

from clearformer import limits, safe_files
from clearformer.training.events import Evaluation, Step

VERSION = 2
VALIDATION = "validation_"
UNPREFIXED = ("event", "step", "best")  # fields of an evaluation that are not metrics
# Names of the targets of a step; `targets` in version 1, which had one name for all.
COUNTED = ("tokens", "texts", "hidden_tokens", "target_tokens", "targets")
NUMBERED = ("resume", "evaluation")  # events that need a step
BLOCK = 2**16  # bytes that are searched at a time for the end of the last line


class Metrics(list[dict[str, Any]]):
    """Rows of metrics, as `read` returns them."""

    def frame(self) -> Any:
        """The rows as a pandas frame."""
        try:
            import pandas
        except ImportError:
            raise ValueError("metrics().frame() needs pandas: pip install pandas") from None
        return pandas.DataFrame(self)


class MetricsFile:
    """An append-only file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        descriptor = safe_files.open_in_place(path)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        _cut_torn_tail(descriptor)
        self.has_rows = os.fstat(descriptor).st_size > 0  # by an earlier start

    def append(self, record: Mapping[str, Any]) -> None:
        data = json.dumps(json_row(record)).encode() + b"\n"
        if self._file.write(data) != len(data):  # a disk that fills up takes a part
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {self.path}")

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def require_in_place(self) -> None:
        """ValueError if the file was removed or the run folder moved."""
        safe_files.require_same(self._file.fileno(), self.path)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> MetricsFile:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


class NoFile(MetricsFile):
    """The file of a process that does not write."""

    def __init__(self) -> None:
        self.has_rows = False

    def append(self, record: Mapping[str, Any]) -> None:
        pass

    def sync(self) -> None:
        pass

    def require_in_place(self) -> None:
        pass

    def close(self) -> None:
        pass


def json_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """A row with strings for NaN and infinity, which JSON does not have."""
    return {name: _plain(value) for name, value in record.items()}


def start_row(counted: str, figure: str) -> dict[str, Any]:
    """The first row: what a step counts, and which metric decides."""
    counts = counted.replace(" ", "_")
    return {"event": "start", "version": VERSION, "counts": counts, "figure": figure}


def step_row(event: Step, counted: str) -> dict[str, Any]:
    """The row of a step, with its targets under their name."""
    return {
        "event": "step",
        "step": event.step,
        "train_loss": event.loss,
        "learning_rate": event.lr,
        "gradient_norm": event.gradient_norm,
        counted.replace(" ", "_"): event.tokens,
        "seconds": event.seconds,
        "progress": event.progress,
    }


def evaluation_row(event: Evaluation) -> dict[str, Any]:
    """The row of an evaluation, its metrics with a prefix."""
    figures = {f"{VALIDATION}{name}": value for name, value in event.figures.items()}
    if event.error is not None:
        figures[f"{VALIDATION}standard_error"] = event.error
    return {"event": "evaluation", "step": event.step, "best": event.best, **figures}


def normalized(record: Mapping[str, Any]) -> dict[str, Any]:
    """A row of version 1 or 2 as one of version 2; version 1 did not say what `targets` are."""
    match record.get("event"):
        case None:
            names = {"loss": "train_loss", "lr": "learning_rate", "tokens": "targets"}
            row = {names.get(name, name): value for name, value in record.items()}
            return {**row, "event": "step"}
        case "evaluation":
            return {
                name
                if name in UNPREFIXED or name.startswith(VALIDATION)
                else VALIDATION + name: value
                for name, value in record.items()
            }
        case _:
            return dict(record)


def targets(row: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Name and number of the targets of a normalized step."""
    return next(((name, row[name]) for name in COUNTED if name in row), None)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows that count, normalized and in order, without a torn last line.

    The start and checkpoints are left out: when a checkpoint is saved depends on the clock.
    """
    records: list[dict[str, Any]] = []
    for record in map(normalized, _lines(path)):
        if record.get("event") == "resume":
            records = [r for r in records if r.get("step", 0) <= record["step"]]
            records = [r for r in records if r.get("event") != "end"]
        elif record["event"] not in ("start", "checkpoint") and not _evaluated_again(
            record, records
        ):
            records.append(record)
    return records


def opened(path: Path) -> BufferedReader:
    """Open a file of metrics, if it is a regular file of reasonable size."""
    return safe_files.open_limited(path, limits.MAX_RECORDS_BYTES, "MAX_RECORDS_BYTES")


def content(path: Path, start: int = 0) -> bytes:
    """The bytes of a file of metrics from an offset on, within limits."""
    with opened(path) as file:
        file.seek(start)
        data = file.read()
    lines = data.count(b"\n")
    if lines > limits.MAX_RECORDS:
        raise ValueError(
            f"{path} has {lines:,} lines, but the limit is {limits.MAX_RECORDS:,} (MAX_RECORDS)"
        )
    return data


def _evaluated_again(record: Mapping[str, Any], before: list[dict[str, Any]]) -> bool:
    """Whether a resume has repeated an evaluation: its checkpoint is saved before it."""
    if record.get("event") != "evaluation":
        return False
    same_step = (r for r in before if r.get("step") == record["step"])
    return any(r.get("event") == "evaluation" for r in same_step)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        data = content(path)
    except FileNotFoundError:
        return
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise ValueError(f"{path} is damaged: line {number} is not a JSON object")
        # Without the step of a resume it is unknown which records count.
        step = record.get("step", None if record.get("event") in NUMBERED else 0)
        if type(step) is not int:
            raise ValueError(f"{path} is damaged: the step in line {number} is {step!r:.40}")
        yield record


def _cut_torn_tail(descriptor: int) -> None:
    """Cut off what follows the last line break."""
    size = end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - BLOCK)
        line_break = os.pread(descriptor, end - start, start).rfind(b"\n")
        if line_break >= 0:
            end = start + line_break + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)


def _plain(value: Any) -> Any:
    """A string for a number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")
    return value
