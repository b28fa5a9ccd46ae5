"""Follows training runs by their files: curves, samples, events and state.

The trainer appends to `metrics.jsonl` and `samples.jsonl`. A reader remembers two byte offsets
and takes only complete lines, so nothing is sent twice. If a file has shrunk, or the run was
resumed from an earlier step, it starts again from the beginning.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clearformer.explore.limits import MAX_EVENT_BYTES, MAX_POINTS, SILENT_SECONDS
from clearformer.explore.safe_text import clean
from clearformer.http_server.errors import Problem
from clearformer.runs.checkpoint import MAX_STEPS, numbered
from clearformer.runs.metrics import VALIDATION, content, normalized, opened, targets
from clearformer.runs.stop_request import request

Record = dict[str, Any]
Point = list[Any]  # step and value
Series = dict[str, list[Point]]

TRAINING_CURVES = ("train_loss", "learning_rate", "gradient_norm")
NOT_CURVES = ("standard_error",)  # validation figures without a curve
# The page uses the field names of metrics files of version 1.
VERSION_1 = {"train_loss": "loss", "learning_rate": "lr"}
MAX_LINE = 2**20
NONFINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


@dataclass(frozen=True)
class ReadOffsets:
    """How many bytes of the two files have been read."""

    metrics: int = 0
    samples: int = 0

    def __str__(self) -> str:
        return f"{self.metrics}-{self.samples}"

    @classmethod
    def parse(cls, text: str | None) -> ReadOffsets | None:
        """Offsets from their text; None if it is not valid."""
        match = re.fullmatch(r"(\d{1,15})-(\d{1,15})", text or "")
        return cls(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True)
class NewRecords:
    """The records that were written after some offsets."""

    records: list[Record]
    samples: list[Record]
    offsets: ReadOffsets
    previous_step: Record | None = None  # the last step record before them
    reset: bool = False  # everything that was read before is void


def read_new(folder: Path, since: ReadOffsets) -> NewRecords:
    """Complete lines after the offsets; everything if what was before has changed."""
    metrics, samples = folder / "metrics.jsonl", folder / "samples.jsonl"
    if _size(metrics) < since.metrics or _size(samples) < since.samples:
        return replace(read_new(folder, ReadOffsets()), reset=True)
    lines, metrics_end = _read_lines(metrics, since.metrics)
    records = _normalized(lines)
    if since.metrics and any(record.get("event") == "resume" for record in records):
        return replace(read_new(folder, ReadOffsets()), reset=True)
    texts, samples_end = _read_lines(samples, since.samples)
    before = _last_records(metrics, since.metrics) if since.metrics else []
    steps = [record for record in before if record["event"] == "step"]
    return NewRecords(
        _without_repeated(records),
        [
            {"step": _step(each), "text": clean(each["text"])}
            for each in texts
            if isinstance(each.get("text"), str)
        ],
        ReadOffsets(metrics_end, samples_end),
        steps[-1] if steps else None,
    )


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _read_lines(path: Path, start: int) -> tuple[list[Record], int]:
    """The records of complete lines from a byte on, and the offset of their end."""
    try:
        data = content(path, start)
    except (OSError, ValueError):
        return [], start
    end = data.rfind(b"\n") + 1
    return list(_parsed(data[:end].split(b"\n"))), start + end


def _parsed(lines: Iterable[bytes]) -> Iterator[Record]:
    """The JSON objects among the lines."""
    for line in lines:
        if 0 < len(line) <= MAX_LINE:
            try:
                record = json.loads(line, parse_constant=NONFINITE.get)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield record


def _normalized(records: Iterable[Record]) -> list[Record]:
    """Metrics records of any version, without the header."""
    return [normalized(record) for record in records if record.get("event") != "start"]


def _without_repeated(records: list[Record]) -> list[Record]:
    """Without the records that a resumed run wrote again."""
    valid: list[Record] = []
    for record in records:
        if record.get("event") == "resume":
            step = _step(record)
            valid = [r for r in valid if _step(r) <= step and r.get("event") != "end"]
        else:
            valid.append(record)
    return valid


def _step(record: Mapping[str, Any]) -> int:
    step = record.get("step", 0)
    return step if type(step) is int and 0 <= step < MAX_STEPS else 0


# --- curves --------------------------------------------------------------------------------


def series(
    records: Iterable[Mapping[str, Any]], previous_step: Mapping[str, Any] | None = None
) -> Series:
    """Curves by name, each a list of [step, value]."""
    curves: Series = {}
    before = _progress(previous_step or {})
    for record in records:
        step, event = _step(record), record["event"]
        for name, value in record.items():
            curve = _curve_name(event, name)
            if curve is not None and (value in ("nan", "inf", "-inf") or is_finite(value)):
                curves.setdefault(curve, []).append([step, value])
        now = _progress(record) if event == "step" else None
        if now is not None:
            if before is not None and now[2] > before[2] and now[1] > before[1]:
                rate = (now[1] - before[1]) / (now[2] - before[2])
                if is_finite(rate):
                    curves.setdefault(f"{now[0]}_per_second", []).append([step, rate])
            before = now
    return curves


def _curve_name(event: object, name: str) -> str | None:
    """The page's name for a field of a step or an evaluation; None if it has no curve."""
    if event == "step":
        return name if name in TRAINING_CURVES else None
    figure = name.removeprefix(VALIDATION)
    if event != "evaluation" or figure == name or figure in NOT_CURVES:
        return None
    return "val_loss" if figure == "loss" else clean(figure)


def _progress(record: Mapping[str, Any]) -> tuple[str, float, float] | None:
    """The unit of the training targets, their number so far, and the seconds so far."""
    unit, count = targets(record) or ("", None)
    seconds = record.get("seconds")
    if count is None or seconds is None or not (is_finite(count) and is_finite(seconds)):
        return None
    return unit, float(count), float(seconds)


def _page_record(record: Mapping[str, Any]) -> Record:
    """A record with the page's field names; values that no trainer writes are left out."""
    row = dict(record)
    if record["event"] == "step":
        row = {VERSION_1.get(name, name): value for name, value in record.items()}
        if counted := targets(record):
            row["tokens"] = row.pop(counted[0])
        del row["event"]
    elif record["event"] == "evaluation":
        row = {name.removeprefix(VALIDATION): value for name, value in record.items()}
    texts = {clean(k): clean(v) for k, v in row.items() if isinstance(v, str)}
    others = {
        clean(k): v for k, v in row.items() if v is None or isinstance(v, bool) or is_finite(v)
    }
    return {**others, **texts}


def is_finite(value: object) -> bool:
    """Whether JSON can carry it as a number: not 1e999, nor an integer of 400 digits."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def downsample(points: list[Point], max_points: int = MAX_POINTS) -> list[Point]:
    """At most so many points: the minimum and maximum of each interval, and the last point."""
    if len(points) <= max_points:
        return points
    width = -(-len(points) // (max_points // 2 - 1))
    chosen: list[Point] = []
    for start in range(0, len(points), width):
        interval = points[start : start + width]
        ends = {id(p): p for p in (min(interval, key=_height), max(interval, key=_height))}
        chosen += sorted(ends.values(), key=lambda point: point[0])
    if chosen[-1] is not points[-1]:
        chosen.append(points[-1])
    return chosen


def _height(point: Point) -> float:
    value = float(point[1])
    return value if not math.isnan(value) else math.inf


def metrics(folder: Path, since: str | None) -> dict[str, Any]:
    """Curves and samples after some offsets, and the next offsets."""
    new = read_new(folder, ReadOffsets.parse(since) or ReadOffsets())
    curves = series(new.records, new.previous_step)
    return {
        "series": {name: downsample(points) for name, points in curves.items()},
        "last": _page_record(new.records[-1]) if new.records else None,
        "samples": new.samples[-50:],
        "next": str(new.offsets),
        "reset": new.reset,
    }


# --- events --------------------------------------------------------------------------------


@dataclass
class RunWatcher:
    """Follows a run for one client; `poll` gives the events since the last call."""

    folder: Path
    offsets: ReadOffsets
    checkpoints: set[str]

    def poll(self) -> list[tuple[str, dict[str, Any]]]:
        new = read_new(self.folder, self.offsets)
        self.offsets = new.offsets
        if new.reset:
            return [("reset", {})]
        events: list[tuple[str, dict[str, Any]]] = []
        if curves := series(new.records, new.previous_step):
            step = max(_step(record) for record in new.records)
            events.append(("metric", {"step": step, "series": _fitted(curves)}))
        events += [("sample", sample) for sample in new.samples]
        added = checkpoint_ids(self.folder) - self.checkpoints
        self.checkpoints |= added
        events += [("checkpoint", {"id": id}) for id in sorted(added)]
        events += [
            ("end", {"step": _step(record), "reason": _reason(record)})
            for record in new.records
            if record.get("event") == "end"
        ]
        return events


def _reason(end: Mapping[str, Any]) -> str:
    reason = end.get("reason")
    return clean(reason) if isinstance(reason, str) else ""


def _fitted(curves: Series) -> Series:
    """The curves, downsampled until they fit into one event."""
    max_points = MAX_POINTS
    while max_points > 8:
        fewer = {name: downsample(points, max_points) for name, points in curves.items()}
        if len(json.dumps(fewer)) <= MAX_EVENT_BYTES:
            return fewer
        max_points //= 2
    return {name: points[-1:] for name, points in curves.items()}


def checkpoint_ids(folder: Path) -> set[str]:
    try:
        return {path.name for _, path in numbered(folder / "checkpoints")}
    except (OSError, ValueError):
        return set()


# --- state ---------------------------------------------------------------------------------


def state(folder: Path) -> dict[str, Any]:
    """The state of a run, from the last lines of its metrics."""
    path = folder / "metrics.jsonl"
    try:
        changed = path.lstat().st_mtime
    except OSError:
        changed = 0.0  # deleted in the meantime
    quiet = max(0.0, time.time() - changed)
    records = _last_records(path, _size(path))
    if records and records[-1].get("event") == "end":
        end = records[-1]
        return {"step": _step(end), "state": "ended", "reason": _reason(end), "quiet": quiet}
    return {
        "step": max(map(_step, records), default=0),
        "state": "silent" if quiet > SILENT_SECONDS else "running",
        "reason": None,
        "quiet": quiet,
    }


def _last_records(path: Path, end: int) -> list[Record]:
    """The last few complete lines before a byte."""
    start = max(0, end - 2**14)
    try:
        with opened(path) as file:
            file.seek(start)
            data = file.read(end - start)
    except (OSError, ValueError):
        return []
    lines = data[: data.rfind(b"\n") + 1].split(b"\n")
    return _normalized(_parsed(lines[1:] if start else lines))


def stop(folder: Path) -> None:
    """Ask the trainer to save and stop at its next step; a Problem if none is running."""
    try:
        request(folder)
    except ValueError as problem:
        raise Problem(409, "not_running", clean(str(problem))) from None
    except OSError as problem:
        message = f"the file stop cannot be created: {problem.strerror}"
        raise Problem(409, "cannot_stop", message) from None
