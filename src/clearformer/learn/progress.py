"""Progress of a learner, in a JSON file: attempts, hints seen, exercises solved."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clearformer import safe_files
from clearformer.safe_json import read_json


@dataclass(frozen=True)
class Record:
    """The progress on one exercise."""

    attempts: int = 0
    hints: int = 0
    solved: bool = False


def path() -> Path:
    """The file: $XDG_DATA_HOME/clearformer/learn.json, by default below ~/.local/share."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "clearformer" / "learn.json"


def load() -> dict[str, Record]:
    """The records by number of exercise; what the file holds beside them is ignored."""
    if not path().is_file():
        return {}
    found = read_json(path())
    if not isinstance(found, dict):
        raise ValueError(f"{path()} is not a valid progress file: move it away to start over")
    return {str(number): _record(each) for number, each in found.items()}


def of(number: str) -> Record:
    """The record of an exercise."""
    return load().get(number, Record())


def save(number: str, record: Record) -> None:
    """Save the record of an exercise; it is dropped if the file cannot be written."""
    records = load() | {number: record}
    text = json.dumps({each: asdict(known) for each, known in records.items()}, indent=1)
    with contextlib.suppress(OSError):
        path().parent.mkdir(parents=True, exist_ok=True)
        safe_files.replace(path(), f"{text}\n".encode())


def _record(found: Any) -> Record:
    """A record from an untrusted file."""
    known: Mapping[str, Any] = found if isinstance(found, dict) else {}
    return Record(
        attempts=_count(known.get("attempts")),
        hints=_count(known.get("hints")),
        solved=known.get("solved") is True,
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
