"""What a run writes down as it goes: one JSON object a line, appended, never rewritten.

A line is one `write`, so a kill can tear only the last one; a resumed run cuts that off and
says from which step it goes on. `read` undoes the repetition: after a resume at step N,
records of later steps from before it do not count.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class Records:
    """An append-only file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _cut_torn_tail(path)
        self._file = path.open("ab", buffering=0)
        self.begun = path.stat().st_size > 0  # by an earlier start

    def append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps({name: _plain(value) for name, value in record.items()})
        data = line.encode() + b"\n"
        if self._file.write(data) != len(data):  # a disk that fills up takes a part
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {self.path}")

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


class Unwritten(Records):
    """What a process keeps that is not the one to write."""

    def __init__(self) -> None:
        self.begun = False

    def append(self, record: Mapping[str, Any]) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


def read(path: Path) -> list[dict[str, Any]]:
    """The records that count, in order; a torn last line is left out, and so are checkpoints: when
    one is saved is up to the clock."""
    records: list[dict[str, Any]] = []
    for record in _lines(path):
        if record.get("event") == "resume":
            records = [r for r in records if r.get("step", 0) <= record["step"]]
            records = [r for r in records if r.get("event") != "end"]
        elif record.get("event") != "checkpoint" and not _evaluated_again(record, records):
            records.append(record)
    return records


def _evaluated_again(record: Mapping[str, Any], before: list[dict[str, Any]]) -> bool:
    """A checkpoint is saved before its step is evaluated, so a resume evaluates it again."""
    if record.get("event") != "evaluation":
        return False
    same_step = (r for r in before if r.get("step") == record["step"])
    return any(r.get("event") == "evaluation" for r in same_step)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        # A resume says from where, or nobody knows which records count.
        resumes = isinstance(record, dict) and record.get("event") == "resume"
        if not isinstance(record, dict) or (resumes and type(record.get("step")) is not int):
            raise ValueError(f"{path} is damaged: line {number} is no JSON object")
        yield record


def _cut_torn_tail(path: Path) -> None:
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)


def _plain(value: Any) -> Any:
    """JSON has no number for what is not finite; a word says it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")
    return value
