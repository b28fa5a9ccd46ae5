"""Reads tables of texts with labels: .csv, .tsv, .jsonl and .json, also with .gz."""

import contextlib
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from clearformer.data.files import read_file

ENDINGS = (".csv", ".tsv", ".jsonl")  # always tables; a .json may also be a text to learn from
READ = (*ENDINGS, ".json")
LONGEST = 2**27  # characters in a field of a table


@dataclass(frozen=True)
class Table:
    """Texts, and the label of each unless there are none."""

    name: str
    texts: tuple[str, ...]
    labels: tuple[str, ...] | None

    def __post_init__(self) -> None:
        assert self.labels is None or len(self.labels) == len(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, rows: Sequence[int]) -> "Table":
        """Only these rows, in this order."""
        labels = self.labels
        return Table(
            self.name,
            tuple(self.texts[row] for row in rows),
            None if labels is None else tuple(labels[row] for row in rows),
        )


@dataclass(frozen=True)
class Pairs:
    """A text and its translation, many times."""

    name: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sources)

    def select(self, rows: Sequence[int]) -> "Pairs":
        """Only these pairs, in this order."""
        return Pairs(
            self.name,
            tuple(self.sources[row] for row in rows),
            tuple(self.targets[row] for row in rows),
        )


Record = tuple[str, dict[str, object]]  # where it is, and its fields by column


def ending_of(source: str) -> str:
    """What a file's name ends in, such as .csv, packed or not; nothing: ""."""
    return PurePath(source.lower().removesuffix(".gz")).suffix


def is_table(source: str) -> bool:
    """Whether a path names a table and not a text."""
    return source.lower().removesuffix(".gz").endswith(ENDINGS)


def read_table(path: str | Path, text: str = "text", label: str | None = "label") -> Table:
    """The columns `text` and `label` of a table; no label: texts alone.

    A .json file is a list of objects, or of texts where no label is asked for.
    """
    path = Path(path)
    name = str(path)
    ending = ending_of(name)
    if ending not in READ:
        raise ValueError(
            f"{path}: it is not a table: the name of a table ends in {', '.join(READ)}"
        )
    content = "".join(read_file(path).decoded())
    if ending == ".json":
        records = _json(name, content, text)
    else:
        records = {".csv": _csv, ".tsv": _tsv, ".jsonl": _jsonl}[ending](name, content)
    texts, labels = [], []
    for place, record in records:
        for column in (text, label):
            if column is not None and column not in record:
                raise ValueError(
                    f"{name}, {place}: there is no column {column!r}, "
                    f"but there are: {_listed(record)}"
                )
        texts.append(_field(name, place, text, record[text]))
        if label is not None:
            value = _field(name, place, label, record[label])
            if not value.strip():
                raise ValueError(f"{name}, {place}: the label (column {label!r}) is empty")
            labels.append(value)
    if not texts:
        raise ValueError(f"{name}: there are no rows below the names of the columns")
    return Table(name, tuple(texts), None if label is None else tuple(labels))


def _listed(names: Iterable[str]) -> str:
    """Names of columns for one line of a message: no line breaks, and not thousands."""
    known = [name if name.isprintable() else repr(name) for name in names]
    return ", ".join(known[:20]) + (", ..." if len(known) > 20 else "") if known else "none"


def _field(name: str, place: str, column: str, value: object) -> str:
    """A field as text: JSON may have numbers and booleans for labels."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, int | float):
        return json.dumps(value)
    raise ValueError(
        f"{name}, {place}: column {column!r} holds {value!r:.60}, but a text is needed"
    )


class Commas(csv.excel):
    """As spreadsheets write it, and an error where it is not."""

    strict = True


class Tabs(csv.excel_tab):
    """Without quotes: a lone quotation mark must not swallow the rows that follow."""

    quoting = csv.QUOTE_NONE


def _csv(name: str, content: str) -> Iterator[Record]:
    return _delimited(name, content, Commas)


def _tsv(name: str, content: str) -> Iterator[Record]:
    return _delimited(name, content, Tabs)


def _delimited(name: str, content: str, dialect: type[csv.Dialect]) -> Iterator[Record]:
    reader = csv.reader(io.StringIO(content, newline=""), dialect)
    columns: list[str] | None = None
    line = 1
    with _long_fields():
        try:
            for fields in reader:
                if columns is None:
                    columns = fields
                    if len(set(columns)) != len(columns):
                        raise ValueError(
                            f"{name}, line 1: two columns have the same name: {_listed(columns)}"
                        )
                elif fields:
                    if len(fields) != len(columns):
                        raise ValueError(
                            f"{name}, line {line}: it has {len(fields)} fields, but there are "
                            f"{len(columns)} columns: {_listed(columns)}"
                        )
                    yield f"line {line}", dict(zip(columns, fields, strict=True))
                line = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(f"{name}, line {line}: it cannot be read ({error})") from None


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """The csv module's own limit is 131,072 characters, and one for the whole process."""
    before = csv.field_size_limit(LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _jsonl(name: str, content: str) -> Iterator[Record]:
    # Only \n: str.splitlines would also cut at characters that JSON allows inside a string.
    for line, each in enumerate(content.split("\n"), start=1):
        if not each.strip():
            continue
        try:
            record = json.loads(each)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name}, line {line}: it is not JSON ({error})") from None
        if not isinstance(record, dict):
            raise ValueError(f"{name}, line {line}: it is {each[:40]}, but an object is needed")
        yield f"line {line}", record


def _json(name: str, content: str, column: str) -> Iterator[Record]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: it is not JSON ({error})") from None
    if not isinstance(found, list):
        raise ValueError(
            f"{name}: it begins with {content.strip()[:20]!r}, but a list of texts or of objects "
            f"is needed"
        )
    for number, each in enumerate(found, start=1):
        if not isinstance(each, str | dict):
            raise ValueError(
                f"{name}, item {number}: it is {each!r:.40}, but a text or an object is needed"
            )
        yield f"item {number}", each if isinstance(each, dict) else {column: each}
