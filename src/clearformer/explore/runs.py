"""A run as it goes: what its files say, and what they say next.

The trainer appends to `metrics.jsonl` and `samples.jsonl`; we remember how far we have read (a
mark of two byte offsets) and take only lines that are whole. Nothing is ever sent twice. If a
file shrank, or the run was resumed from before what we read, the reader begins anew.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearformer.explore.errors import Problem
from clearformer.explore.limits import EVENT_BYTES, POINTS, SILENT_SECONDS
from clearformer.explore.safe_text import clean
from clearformer.runs.checkpoint import MAX_STEPS, numbered
from clearformer.runs.metrics import VALIDATION, content, normalized, opened, targets
from clearformer.runs.stop_request import request

Point = list[Any]  # step and value
Series = dict[str, list[Point]]

NAMES = ("train_loss", "learning_rate", "gradient_norm")  # curves of the training
EVALUATED = {"loss": "val_loss"}  # what the page calls a figure, where it has a name of its own
LEFT_OUT = ("standard_error",)  # figures that are no curve
# What the page calls the fields of the last record: as files of version 1 had them.
TOLD = {"train_loss": "loss", "learning_rate": "lr"}
LONGEST_LINE = 2**20
LARGEST = sys.float_info.max
NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


@dataclass(frozen=True)
class Mark:
    """How far two files have been read."""

    metrics: int = 0
    samples: int = 0

    def __str__(self) -> str:
        return f"{self.metrics}-{self.samples}"

    @classmethod
    def parse(cls, text: str | None) -> Mark | None:
        """A mark that we gave out; none: it is not one of ours."""
        match = re.fullmatch(r"(\d{1,15})-(\d{1,15})", text or "")
        return cls(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True)
class News:
    """What has been written since a mark."""

    records: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    mark: Mark
    before: dict[str, Any] | None = None  # the step that came before them
    reset: bool = False  # what was read before does not count any more


def news(folder: Path, since: Mark) -> News:
    """Whole lines after the mark; from the beginning if what was before has changed."""
    metrics, samples = folder / "metrics.jsonl", folder / "samples.jsonl"
    if _size(metrics) < since.metrics or _size(samples) < since.samples:
        return _anew(folder)
    lines, end = _lines(metrics, since.metrics)
    records = _rows(lines)
    if since.metrics and any(record.get("event") == "resume" for record in records):
        return _anew(folder)
    texts, samples_end = _lines(samples, since.samples)
    before = _last_records(metrics, since.metrics) if since.metrics else []
    steps = [record for record in before if record["event"] == "step"]
    mark = Mark(end, samples_end)
    return News(_counting(records), _samples(texts), mark, steps[-1] if steps else None)


def _anew(folder: Path) -> News:
    found = news(folder, Mark())
    return News(found.records, found.samples, found.mark, reset=True)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _lines(path: Path, start: int) -> tuple[list[dict[str, Any]], int]:
    """The whole lines from a byte on, and where they end; what is no record is passed over."""
    try:
        data = content(path, start)
    except (OSError, ValueError):
        return [], start
    end = data.rfind(b"\n") + 1
    return list(_records(data[:end].split(b"\n"))), start + end


def _records(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if 0 < len(line) <= LONGEST_LINE:
            try:
                record = json.loads(line, parse_constant=NOT_FINITE.get)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield record


def _rows(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of metrics, of any version; the line that says which is none."""
    return [normalized(record) for record in records if record.get("event") != "start"]


def _counting(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what a resumed run did again."""
    found: list[dict[str, Any]] = []
    for record in records:
        if record.get("event") == "resume":
            step = _step(record)
            found = [r for r in found if _step(r) <= step and r.get("event") != "end"]
        else:
            found.append(record)
    return found


def _samples(texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"step": _step(each), "text": clean(each["text"])}
        for each in texts
        if isinstance(each.get("text"), str)
    ]


def _step(record: Mapping[str, Any]) -> int:
    step = record.get("step", 0)
    return step if type(step) is int and 0 <= step < MAX_STEPS else 0


# --- curves --------------------------------------------------------------------------------


def series(
    records: Iterable[Mapping[str, Any]], previous: Mapping[str, Any] | None = None
) -> Series:
    """Curves by name, each a list of [step, value]."""
    found: Series = {}
    before = _clock(previous or {})
    for record in records:
        step, event = _step(record), record["event"]
        if event not in ("step", "evaluation"):
            continue
        for name, value in record.items():
            shown = _shown(event, name)
            if shown is not None and _is_number(value):
                found.setdefault(shown, []).append([step, value])
        now = _clock(record) if event == "step" else None
        if now is not None:
            if before is not None and now[2] > before[2] and now[1] > before[1]:
                rate = (now[1] - before[1]) / (now[2] - before[2])
                if is_finite(rate):
                    found.setdefault(f"{now[0]}_per_second", []).append([step, rate])
            before = now
    return found


def _shown(event: str, name: str) -> str | None:
    """What the page calls a field of a step or an evaluation; none: it is no curve."""
    if event == "step":
        return name if name in NAMES else None
    figure = name.removeprefix(VALIDATION)
    known = name.startswith(VALIDATION) and figure not in LEFT_OUT
    return EVALUATED.get(figure, clean(figure)) if known else None


def _clock(record: Mapping[str, Any]) -> tuple[str, float, float] | None:
    """What is learned from, how much of it so far, and seconds so far."""
    unit, count = targets(record) or ("", None)
    seconds = record.get("seconds")
    if count is None or seconds is None or not (is_finite(count) and is_finite(seconds)):
        return None
    return ("tokens" if unit == "targets" else unit, float(count), float(seconds))


def _told(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as the page knows it."""
    match record["event"]:
        case "step":
            row = {TOLD.get(name, name): value for name, value in record.items()}
            if counted := targets(record):
                row["tokens"] = row.pop(counted[0])
            del row["event"]
            return row
        case "evaluation":
            return {name.removeprefix(VALIDATION): value for name, value in record.items()}
        case _:
            return dict(record)


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        return value in ("nan", "inf", "-inf")
    return is_finite(value)


def is_finite(value: object) -> bool:
    """Whether an answer can carry it as a number: 1e999 is none, nor is one of 400 digits."""
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST  # type: ignore[operator]


def binned(points: list[Point], most: int = POINTS) -> list[Point]:
    """At most so many points: of each stretch the least, the largest, and the very last."""
    if len(points) <= most:
        return points
    width = -(-len(points) // (most // 2 - 1))
    found: list[Point] = []
    for start in range(0, len(points), width):
        stretch = points[start : start + width]
        ends = {id(p): p for p in (min(stretch, key=_height), max(stretch, key=_height))}
        found += sorted(ends.values(), key=lambda point: point[0])
    if found[-1] is not points[-1]:
        found.append(points[-1])
    return found


def _height(point: Point) -> float:
    value = float(point[1])
    return value if not math.isnan(value) else math.inf


def metrics(folder: Path, since: str | None) -> dict[str, Any]:
    """Curves and samples after a mark, and the next mark."""
    mark = Mark.parse(since)
    found = news(folder, mark or Mark())
    last = found.records[-1] if found.records else None
    return {
        "series": {
            name: binned(points) for name, points in series(found.records, found.before).items()
        },
        "last": None if last is None else _flat(_told(last)),
        "samples": found.samples[-50:],
        "next": str(found.mark),
        "reset": found.reset,
    }


def _flat(record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A record without what no trainer writes: it was read from a file."""
    if record is None:
        return None
    texts = {clean(k): clean(v) for k, v in record.items() if isinstance(v, str)}
    others = {
        clean(k): v for k, v in record.items() if v is None or isinstance(v, bool) or is_finite(v)
    }
    return {**others, **texts}


# --- events --------------------------------------------------------------------------------


@dataclass
class Watch:
    """One page that follows a run; `poll` gives the events since the last time."""

    folder: Path
    mark: Mark
    checkpoints: set[str]

    def poll(self) -> list[tuple[str, dict[str, Any]]]:
        found = news(self.folder, self.mark)
        self.mark = found.mark
        if found.reset:
            return [("reset", {})]
        events: list[tuple[str, dict[str, Any]]] = []
        if curves := series(found.records, found.before):
            step = max(_step(record) for record in found.records)
            events.append(("metric", {"step": step, "series": _fitting(curves)}))
        events += [("sample", sample) for sample in found.samples]
        for id in sorted(checkpoint_ids(self.folder) - self.checkpoints):
            self.checkpoints.add(id)
            events.append(("checkpoint", {"id": id}))
        for record in found.records:
            if record.get("event") == "end":
                events.append(("end", {"step": _step(record), "reason": _reason(record)}))
        return events


def _reason(end: Mapping[str, Any]) -> str:
    reason = end.get("reason")
    return clean(reason) if isinstance(reason, str) else ""


def _fitting(curves: Series) -> Series:
    """Thin enough for one event."""
    most = POINTS
    while most > 8:
        thin = {name: binned(points, most) for name, points in curves.items()}
        if len(json.dumps(thin)) <= EVENT_BYTES:
            return thin
        most //= 2
    return {name: points[-1:] for name, points in curves.items()}


def checkpoint_ids(folder: Path) -> set[str]:
    try:
        return {path.name for _, path in numbered(folder / "checkpoints")}
    except (OSError, ValueError):
        return set()


# --- the list ------------------------------------------------------------------------------


def state(folder: Path, now: float | None = None) -> dict[str, Any]:
    """Where a run stands, by the last lines of its metrics."""
    path = folder / "metrics.jsonl"
    try:
        changed = path.lstat().st_mtime
    except OSError:
        changed = 0.0  # it was deleted a moment ago
    quiet = max(0.0, (time.time() if now is None else now) - changed)
    last = _last_records(path, _size(path))
    end = last[-1] if last and last[-1].get("event") == "end" else None
    step = max((_step(record) for record in last), default=0)
    alive = "silent" if quiet > SILENT_SECONDS else "running"
    return {
        "step": _step(end) if end is not None else step,
        "state": alive if end is None else "ended",
        "reason": None if end is None else _reason(end),
        "quiet": quiet,
    }


def _last_records(path: Path, end: int) -> list[dict[str, Any]]:
    """The last few whole lines before a byte."""
    start = max(0, end - 2**14)
    try:
        with opened(path) as file:
            file.seek(start)
            data = file.read(end - start)
    except (OSError, ValueError):
        return []
    lines = data[: data.rfind(b"\n") + 1].split(b"\n")
    return _rows(_records(lines[1:] if start else lines))


def stop(folder: Path) -> None:
    """Ask the trainer to save and end at its next step; a Problem if none is at work."""
    try:
        request(folder)
    except ValueError as problem:
        raise Problem(409, "not_running", clean(str(problem))) from None
    except OSError as problem:
        raise Problem(
            409, "cannot_stop", f"the file stop cannot be created: {problem.strerror}"
        ) from None
