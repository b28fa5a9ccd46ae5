"""What the label column of a table holds: one label, several labels, or a number.

A form reads the fields of a row as one text, and brings the texts of all rows into one spelling:
several labels become a sorted JSON list, a number the shortest text of its value.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from clearformer.data.cleaning import (
    Note,
    RowList,
    matching_labels,
    merge_spellings,
    normalized,
    rows_are,
    spellings,
    was,
)
from clearformer.data.table_files import Value, listed, text_of
from clearformer.table_options import LabelledFormat

SEPARATORS = (";", "|", ",")
YES = {"1", "1.0", "true", "yes", "y", "x"}
NO = {"0", "0.0", "false", "no", "n", ""}
MANY_NUMBERS = 20  # different numbers, above which they are hardly the names of classes
MAX_LIST = 100_000  # characters of a list that is written as text
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
SIGNS = "€$£¥% \u00a0"  # that may stand before or behind a number
THOUSANDS = re.compile(r"[+-]?\d{1,3},\d{3}")

Field = tuple[str, Value]  # a column and its value


class LabelForm:
    """Base of the forms."""

    stratified: ClassVar[bool] = True  # whether a split keeps the share of each label
    may_be_empty: ClassVar[bool] = False  # whether a row may have no label

    def columns(self, label: str, known: Sequence[str]) -> tuple[str, ...]:
        """The columns that hold the label."""
        return (label,)

    def join(self, name: str, where: str, fields: Sequence[Field]) -> str:
        """The fields of a row as one text; empty if the row has no label."""
        ((column, value),) = fields
        return text_of(name, where, column, value)

    def settle(self, name: str, rows: RowList, options: LabelledFormat, note: Note) -> RowList:
        """The rows with their labels in one spelling."""
        return rows

    def parts(self, label: str) -> Sequence[str]:
        """The labels that a field holds; none if it is a number."""
        return (label,)

    def names(self, labels: Iterable[str]) -> list[str]:
        """The different labels that occur, sorted."""
        return sorted({part for label in set(labels) for part in self.parts(label)})

    def matching(self, labels: Sequence[str], names: Sequence[str]) -> Sequence[str]:
        """Labels in the spelling of a model's classes."""
        return labels


class OneLabel(LabelForm):
    """The name of a class."""

    def join(self, name: str, where: str, fields: Sequence[Field]) -> str:
        ((column, value),) = fields
        if isinstance(value, list):
            raise ValueError(
                f"{name}, {where}: column {column!r} holds {value!r:.60}, but a classifier learns "
                f"one label for each text: several are --task multi-label"
            )
        return text_of(name, where, column, value)

    def settle(self, name: str, rows: RowList, options: LabelledFormat, note: Note) -> RowList:
        if options.unlabelled == "keep" and "" in rows.labels:
            raise ValueError(
                f"{name}: unlabelled is 'keep', but a classifier needs a label for each text: "
                f"use skip, or --task multi-label"
            )
        if (hint := task_hint([label or "" for label in rows.labels])) is not None:
            note(hint)
        return normalized(rows, note) if options.normalize_labels else rows

    def matching(self, labels: Sequence[str], names: Sequence[str]) -> Sequence[str]:
        return matching_labels(labels, names)


class LabelSets(LabelForm):
    """Any number of labels: a list in JSON, one text with separators, or a column for each."""

    stratified: ClassVar[bool] = False
    may_be_empty: ClassVar[bool] = True

    def columns(self, label: str, known: Sequence[str]) -> tuple[str, ...]:
        several = tuple(part.strip() for part in label.split(","))
        return several if len(several) > 1 and label not in known else (label,)

    def join(self, name: str, where: str, fields: Sequence[Field]) -> str:
        if len(fields) > 1:
            return as_list(
                column for column, value in fields if _is_yes(name, where, column, value)
            )
        ((column, value),) = fields
        if isinstance(value, list | tuple):
            return as_list(text_of(name, where, column, each) for each in value)
        text = text_of(name, where, column, value)
        written = _written_list(text)
        return text if written is None else as_list(written)

    def settle(self, name: str, rows: RowList, options: LabelledFormat, note: Note) -> RowList:
        raw = [label for label in rows.labels if label and not label.startswith("[")]
        separator = options.between_labels
        if separator is None:
            separator = _separator(raw)
            if separator is not None:
                note(f"labels are separated by {separator!r}; --label-separator names another")
        sets = [_split(label or "", separator) for label in rows.labels]
        if options.normalize_labels:
            chosen = spellings(each for labels in sets for each in labels)
            merge_spellings((each for labels in sets for each in labels), chosen, note)
            sets = [[chosen[each] for each in labels] for labels in sets]
        pairs = zip(rows, sets, strict=True)
        return RowList(row._replace(label=as_list(labels)) for row, labels in pairs)

    def parts(self, label: str) -> Sequence[str]:
        return labels_of(label)

    def matching(self, labels: Sequence[str], names: Sequence[str]) -> Sequence[str]:
        return [as_list(matching_labels(labels_of(each), names)) for each in labels]


class Numbers(LabelForm):
    """A number to predict."""

    stratified: ClassVar[bool] = False

    def parts(self, label: str) -> Sequence[str]:
        return ()

    def settle(self, name: str, rows: RowList, options: LabelledFormat, note: Note) -> RowList:
        signs = [each for each in rows.labels if each and each.strip() != each.strip(SIGNS)]
        if signs:
            has = _numbers(len(signs))
            note(f"{has} a sign such as that of {signs[0]!r:.40}, which is left out")
        labels = [(label or "").strip(SIGNS) for label in rows.labels]
        commas = [label for label in labels if DECIMAL_COMMA.fullmatch(label)]
        if commas and all(map(THOUSANDS.fullmatch, commas)):
            raise ValueError(
                f"{name}: the label {commas[0]!r} may be {commas[0].replace(',', '')} or "
                f"{commas[0].replace(',', '.')}: write numbers without a comma"
            )
        if commas:
            note(f"{_numbers(len(commas))} a decimal comma, such as {commas[0]!r}")
        values = [number_of(label) for label in labels]
        wrong = [row for row, value in zip(rows, values, strict=True) if value is None]
        if len(wrong) > len(rows) // 2 or (wrong and options.unlabelled == "error"):
            raise ValueError(
                f"{name}, {wrong[0].where}: the label is {wrong[0].label!r:.60}, as in "
                f"{len(wrong):,} of {len(rows):,} rows, but a number is needed: correct it, or "
                f"predict classes (--task classes)"
            )
        if wrong:
            note(
                f"{rows_are(len(wrong))} without a number and {was(wrong)} skipped (the first: "
                f"{wrong[0].where}, {wrong[0].label!r:.40}; --unlabelled error stops there)"
            )
        pairs = zip(rows, values, strict=True)
        return RowList(row._replace(label=repr(value)) for row, value in pairs if value is not None)


ONE_LABEL, LABEL_SETS, NUMBERS = OneLabel(), LabelSets(), Numbers()
FORMS: dict[str, LabelForm] = {  # by the task that learns from such a column
    "classes": ONE_LABEL,
    "multi-label": LABEL_SETS,
    "regression": NUMBERS,
}


def _numbers(count: int) -> str:
    return "1 number has" if count == 1 else f"{count:,} numbers have"


def as_list(labels: Iterable[str]) -> str:
    """Different labels as one text: a sorted list in JSON."""
    return json.dumps(sorted({each.strip() for each in labels if each.strip()}), ensure_ascii=False)


def labels_of(text: str) -> tuple[str, ...]:
    """The labels that `as_list` wrote."""
    return tuple(json.loads(text))


def number_of(text: str) -> float | None:
    """A number as people write it, also with a decimal comma; None if it is none."""
    text = text.strip().strip(SIGNS)
    if DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def task_hint(labels: Sequence[str]) -> str | None:
    """A note on labels that look like numbers to predict, or like several labels in one field."""
    counts = Counter(labels)
    values = [number_of(label) for label in counts]
    if counts and all(value is not None for value in values):
        whole = all(value is not None and value.is_integer() for value in values)
        if len(counts) > (MANY_NUMBERS if whole else 5):
            return (
                f"the labels are numbers, {len(counts):,} different ones in {len(labels):,} rows, "
                f"and each is taken as the name of a class: --task regression predicts numbers"
            )
        return None
    for separator in SEPARATORS:
        parts = Counter(part.strip() for label in counts for part in label.split(separator))
        joined = sum(separator in label for label in counts)
        if joined > 1 and len(parts) < len(counts) and min(map(len, parts)) > 0:
            example = next(label for label in counts if separator in label)
            return (
                f"{joined:,} classes have a {separator!r} in their name, such as {example!r:.60}: "
                f"--task multi-label takes them as several labels"
            )
    return None


def columns_hint(label: str, record: Mapping[str, object]) -> str | None:
    """What to add to the error about a column `a,b` that does not exist, but a and b do."""
    parts = [part.strip() for part in label.split(",")]
    if len(parts) < 2 or not all(part in record for part in parts):
        return None
    return f"; {listed(parts)} as columns of 0 and 1 are --task multi-label"


def _split(text: str, separator: str | None) -> Sequence[str]:
    if text.startswith("["):
        return labels_of(text)
    parts = [text] if separator is None else text.split(separator)
    return [part.strip() for part in parts if part.strip()]


def _separator(labels: Sequence[str]) -> str | None:
    """The separator that occurs in the most labels; None if they have none."""
    counts = {each: sum(each in label for label in labels) for each in SEPARATORS}
    best = max(SEPARATORS, key=lambda each: counts[each])
    return best if counts[best] else None


def _written_list(text: str) -> list[str] | None:
    """The texts of a list that a .csv holds, in JSON or as Python writes it; None: it is none."""
    if not (text.strip().startswith("[") and text.strip().endswith("]")) or len(text) > MAX_LIST:
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list) and all(isinstance(e, str | int | float) for e in found):
            return [str(each) for each in found]
    return [part.strip() for part in text.strip()[1:-1].split(",")]


def _is_yes(name: str, where: str, column: str, value: Value) -> bool:
    text = text_of(name, where, column, value).strip().casefold()
    if text not in YES | NO:
        raise ValueError(
            f"{name}, {where}: column {column!r} holds {value!r:.60}, but 1 or 0 is needed where "
            f"several columns are labels"
        )
    return text in YES
