"""Training data that is given in memory: lists, pandas and polars frames, Hugging Face datasets.

It is written into the run folder as a text or a .jsonl table, so that a run can resume without it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clearformer.escape import json_line

WANTED = (
    "a path, a list of texts, a list of (text, label) pairs, a list of dicts, a pandas frame or a "
    "datasets.Dataset"
)


@dataclass(frozen=True)
class InMemory:
    """Rows: strings, pairs, or mappings from column names to values."""

    rows: Sequence[Any]

    @property
    def is_texts(self) -> bool:
        return isinstance(self.rows[0], str)

    @property
    def is_records(self) -> bool:
        return isinstance(self.rows[0], Mapping)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def file_name(self, as_table: bool) -> str:
        """The file that holds it: records are a text too, for a model that reads texts."""
        return "data.txt" if self.is_texts or (self.is_records and not as_table) else "data.jsonl"

    def content(self, columns: tuple[str, str], as_table: bool) -> bytes:
        """The file: a line for each text, or a table with at least these two columns."""
        if self.is_texts:
            return _lines(self.rows)
        if not self.is_records:
            rows = (dict(zip(columns, row, strict=True)) for row in self.rows)
            return _lines(json_line(row) for row in rows)
        if as_table:
            return _lines(json_line(dict(row)) for row in self.rows)
        if columns[0] not in self.columns:
            raise ValueError(
                f"data has no column {columns[0]!r}; the columns are {', '.join(self.columns)}: "
                f"name the one with the texts, text={self.columns[0]!r}"
            )
        return _lines(str(row.get(columns[0]) or "") for row in self.rows)


def in_memory_data(data: Any) -> InMemory:
    """Check data that was given in memory; ValueError names the first row that does not fit."""
    rows = _listed(data)
    if not rows:
        raise ValueError("data is an empty list: give at least one text, or a path")
    if all(isinstance(row, Mapping) for row in rows):
        return InMemory([_record(row, place) for place, row in enumerate(rows)])
    pairs = all(isinstance(row, tuple | list) and len(row) == 2 for row in rows)
    for place, row in enumerate(rows):
        _require_text(row[0] if pairs else row, row, f"data[{place}]")
    if pairs:
        rows = [(text, _label(label, place)) for place, (text, label) in enumerate(rows)]
    return InMemory(rows)


def _listed(data: Any) -> list[Any]:
    """The rows of a list, of a frame, of a data set, or of a mapping of columns."""
    if hasattr(data, "to_dicts"):  # polars
        return list(data.to_dicts())
    if hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        return list(data.to_dict("records"))
    if isinstance(data, Mapping):
        values = list(data.values())
        columns = all(isinstance(each, list | tuple) for each in values)
        if values and columns and len({len(each) for each in values}) == 1:
            return [dict(zip(data, row, strict=True)) for row in zip(*values, strict=True)]
        parts = ", ".join(map(str, data))
        if values and all(hasattr(each, "column_names") for each in values):
            raise ValueError(f"data has the parts {parts}: give one of them, data[{parts!r}]")
    if not isinstance(data, Iterable) or isinstance(data, Mapping | bytes | bytearray):
        raise ValueError(f"data is {data!r:.60}, but it must be {WANTED}")
    return list(data)


def _record(row: Mapping[str, Any], place: int) -> dict[str, Any]:
    record = {}
    for name, value in row.items():
        value = value.tolist() if hasattr(value, "tolist") else value  # of numpy
        missing = isinstance(value, float) and math.isnan(value)
        plain = isinstance(value, str | int | float | bool | None) and not missing
        if isinstance(value, list | tuple | set) and all(isinstance(e, str) for e in value):
            value, plain = sorted(value), True  # several labels
        if isinstance(value, str):
            _require_text(value, value, f"data[{place}][{name!r}]")
        # What is neither text nor number is a column that nobody trains on.
        record[str(name)] = value if plain else None if missing else str(value)
    return record


def _require_text(text: Any, row: Any, where: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{where} is {row!r:.60}, but data must be {WANTED}")
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair cannot be written to a file
        raise ValueError(f"{where} is {text!r:.60}, which is not valid Unicode text") from None


def _label(label: Any, row: int) -> str | int | float | bool | list[str]:
    """A label as JSON has it; also a scalar of numpy, or several labels."""
    label = label.tolist() if hasattr(label, "tolist") else label
    if isinstance(label, list | tuple | set) and all(isinstance(each, str) for each in label):
        return sorted(label)
    if not isinstance(label, str | int | float) or label != label:
        raise ValueError(
            f"the label of data[{row}] is {label!r:.60}, but it must be a text, a number or a list "
            f"of texts"
        )
    return label


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
