"""Reads tables of texts with labels: .csv, .tsv, .jsonl and .json, also with .gz."""

import contextlib
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from clearformer.data.files import read_file

ENDINGS = (".csv", ".tsv", ".jsonl")  # always tables; a .json may also be a training text
READ_EXTENSIONS = (*ENDINGS, ".json")
MAX_FIELD = 2**27  # characters in a field of a table


@dataclass(frozen=True)
class Table:
    """Texts, with or without labels."""

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
    """Texts and their translations."""

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
    """The extension of a file, such as .csv, without .gz."""
    return PurePath(source.lower().removesuffix(".gz")).suffix


def is_table(source: str) -> bool:
    """Whether a path is that of a table, not of a text."""
    return source.lower().removesuffix(".gz").endswith(ENDINGS)


def read_table(path: str | Path, text: str = "text", label: str | None = "label") -> Table:
    """The columns `text` and `label` of a table; texts alone if `label` is None.

    A .json file is a list of objects, or of texts if `label` is None.
    """
    name = str(path)
    texts, labels = [], []
    for where, record in read_records(path, text):
        for column in (text, label):
            if column is not None and column not in record:
                raise ValueError(
                    f"{name}, {where}: there is no column {column!r}; the columns are "
                    f"{_listed(record)}"
                )
        texts.append(_field(name, where, text, record[text]))
        if label is not None:
            value = _field(name, where, label, record[label])
            if not value.strip():
                raise ValueError(f"{name}, {where}: the label (column {label!r}) is empty")
            labels.append(value)
    if not texts:
        raise ValueError(f"{name}: there are no rows below the header")
    return Table(name, tuple(texts), None if label is None else tuple(labels))


def read_records(path: str | Path, text: str = "text") -> Iterator[Record]:
    """The rows of a table with where each stands; a text of a .json list is the column `text`."""
    path = Path(path)
    name = str(path)
    ending = ending_of(name)
    if ending not in READ_EXTENSIONS:
        raise ValueError(
            f"{path} is not a table: its name must end in {', '.join(READ_EXTENSIONS)}"
        )
    content = "".join(read_file(path).decoded())
    match ending:
        case ".json":
            return _json(name, content, text)
        case ".jsonl":
            return _jsonl(name, content)
        case _:
            return _delimited(name, content, Commas if ending == ".csv" else Tabs)


def _listed(names: Iterable[str]) -> str:
    """Names of columns for an error message: at most 20, on one line."""
    shown = [name if name.isprintable() else repr(name) for name in names]
    return ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else "") if shown else "none"


def _field(name: str, where: str, column: str, value: object) -> str:
    """A field as text; JSON may have numbers and booleans as labels."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, int | float):
        return json.dumps(value)
    raise ValueError(
        f"{name}, {where}: column {column!r} holds {value!r:.60}, but a text is needed"
    )


class Commas(csv.excel):
    """CSV as written by spreadsheets; anything else is an error."""

    strict = True


class Tabs(csv.excel_tab):
    """TSV without quoting: a single quotation mark must not span several rows."""

    quoting = csv.QUOTE_NONE


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
    """Raise the field limit of the csv module, 131,072 characters, which is global."""
    before = csv.field_size_limit(MAX_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _jsonl(name: str, content: str) -> Iterator[Record]:
    # Only \n: str.splitlines would also split at characters that JSON allows inside a string.
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
        items = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: it is not JSON ({error})") from None
    if not isinstance(items, list):
        raise ValueError(
            f"{name}: it begins with {content.strip()[:20]!r}, but a list of texts or of objects "
            f"is needed"
        )
    for number, each in enumerate(items, start=1):
        if not isinstance(each, str | dict):
            raise ValueError(
                f"{name}, item {number}: it is {each!r:.40}, but a text or an object is needed"
            )
        yield f"item {number}", each if isinstance(each, dict) else {column: each}
