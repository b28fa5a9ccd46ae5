"""Rows of table files, one by one: .csv, .tsv, .jsonl, .ndjson, .json, .parquet and .xlsx.

`open_table` gives every row with all its columns, as it is in the file; `tables` takes the texts
and labels from it.
"""

import csv
import datetime
import json
import math
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from clearformer import limits
from clearformer.data.files import read_file
from clearformer.data.reading_progress import counted
from clearformer.data.table_encoding import decoded_table
from clearformer.data.texts import changed_while_read
from clearformer.table_options import TableFormat

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".xlsx")  # always tables
READ_EXTENSIONS = (*ENDINGS, ".json")  # a .json may also be a training text
DELIMITERS = (",", ";", "\t", "|")
MAX_FIELD = 2**27  # characters in a field of a table
MAX_COLUMNS = 10_000
TITLE_ROWS = 10  # of a sheet, among which the header is looked for

Value = object  # a field: a string, or what JSON, Parquet and spreadsheets have besides
Record = tuple[str, dict[str, Value]]  # where it is, and its fields by column


@dataclass
class TableFile:
    """The rows of a table. `notes` is complete when all records have been read."""

    name: str
    records: Iterator[Record]
    columns: tuple[str, ...] | None = None  # None: each row names its own
    notes: list[str] = field(default_factory=list)
    repeated: frozenset[str] = frozenset()  # names that several columns have
    hint: str = "check --delimiter"  # for a table that has only one column


def ending_of(source: str) -> str:
    """The extension of a file, such as .csv, without .gz."""
    return PurePath(source.lower().removesuffix(".gz")).suffix


def is_table(source: str) -> bool:
    """Whether a path is that of a table, not of a text."""
    return source.lower().removesuffix(".gz").endswith(ENDINGS)


def open_table(
    path: str | Path, options: TableFormat = TableFormat(), column: str = "text"
) -> TableFile:
    """Open a table. A .json file may be a list of texts, which become the column `column`."""
    path = Path(path)
    name = str(path)
    ending = ending_of(name)
    if ending not in READ_EXTENSIONS:
        raise ValueError(
            f"{path} is not a table: its name must end in {', '.join(READ_EXTENSIONS)}"
        )
    if ending in (".parquet", ".xlsx"):
        file = _binary(path, ending, options)
        file.records = counted(name, file.records)
        return file
    source = read_file(path)
    file = TableFile(name, iter(()))
    text = decoded_table(source, options.encoding, file.notes.append)
    match ending:
        case ".json":
            records = _json(file, "".join(text), column)
        case ".jsonl" | ".ndjson":
            records = _jsonl(name, _lines(text))
        case _:
            records = _delimited(file, text, options, tabs=ending == ".tsv")

    def unchanged() -> Iterator[Record]:
        yield from records
        if not all(piece.unchanged() for piece in source.pieces):
            raise changed_while_read(name)

    file.records = counted(name, unchanged())
    return file


def listed(names: Iterable[str], most: int = 20) -> str:
    """Names of columns for an error message: at most 20, on one line."""
    shown = [_printable(name) for name in names]
    return ", ".join(shown[:most]) + (", ..." if len(shown) > most else "") if shown else "none"


def _printable(name: str) -> str:
    shown = name if name.isprintable() else repr(name)
    return shown if len(shown) <= 60 else f"{shown[:59]}…"


def _lines(chunks: Iterable[str]) -> Iterator[str]:
    """Lines without their ends. Only \\n ends a line: JSON allows other breaks inside a string."""
    rest = ""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split("\n")
        yield from complete
    if rest:
        yield rest


# --- .csv and .tsv -------------------------------------------------------------------------

# The csv module has one limit, 131,072 characters, for all readers of the process: it is raised
# here and never lowered, as several tables may be read at once.
csv.field_size_limit(max(MAX_FIELD, csv.field_size_limit()))


class Commas(csv.excel):
    """CSV as written by spreadsheets; anything else is an error."""

    strict = True


class Tabs(csv.excel_tab):
    """TSV without quoting: a single quotation mark must not span several rows."""

    quoting = csv.QUOTE_NONE


LINE_END = re.compile(r"\r\n|\r|\n")


def _csv_lines(chunks: Iterable[str]) -> Iterator[str]:
    """Lines with their ends, which may be \\n, \\r\\n or \\r."""
    pending: list[str] = []  # parts of a line whose end has not come; joined once
    held = ""
    for chunk in chunks:
        text = held + chunk
        # A \r at the end of a chunk may be the first half of \r\n.
        held = "\r" if text.endswith("\r") else ""
        start, stop = 0, len(text) - len(held)
        for end in LINE_END.finditer(text, 0, stop):
            yield "".join((*pending, text[start : end.end()]))
            pending, start = [], end.end()
        if start < stop:
            pending.append(text[start:stop])
    if last := "".join(pending) + held:
        yield last


def _delimited(
    file: TableFile, chunks: Iterable[str], options: TableFormat, tabs: bool
) -> Iterator[Record]:
    lines = _csv_lines(chunks)
    first = next(lines, "")
    skipped = 0
    separator = options.separator
    if (told := re.match(r"sep=(.)\r?\n?$", first)) is not None:  # a line that Excel writes
        separator = separator or told[1]
        first, skipped = next(lines, ""), 1
    if separator is None:
        separator = _separator(first, "\t" if tabs else ",")
        usual = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
        if separator != ("\t" if tabs else ","):
            file.notes.append(
                f"{file.name} is separated by {usual[separator]}s, by its header; --delimiter "
                f"names another separator"
            )
    dialect: Any = Tabs if separator == "\t" and tabs else Commas
    reader = csv.reader(_with(first, lines), dialect, delimiter=separator)
    yield from _rows(file, reader, options, skipped)


def _with(first: str, lines: Iterator[str]) -> Iterator[str]:
    yield first
    yield from lines


def _separator(header: str, usual: str) -> str:
    """The delimiter that occurs most often in a header, outside quotation marks."""
    bare = re.sub(r'"[^"]*("|$)', "", header)  # a name may go on in the next line
    counts = {each: bare.count(each) for each in DELIMITERS}
    best = max(counts, key=lambda each: (counts[each], each == usual))
    return best if counts[best] else usual


def _rows(file: TableFile, reader: Any, options: TableFormat, line: int) -> Iterator[Record]:
    offset, columns, bad = line, None, 0
    line += 1
    try:
        for fields in reader:
            if columns is None:
                columns = _set_columns(file, fields)
            elif any(fields):
                extra = fields[len(columns) :]
                if len(fields) < len(columns) or any(extra):
                    if options.bad_rows == "error":
                        raise ValueError(
                            f"{file.name}, line {line}: it has {len(fields)} fields, but there are "
                            f"{len(columns)} columns: {listed(columns)}; check --delimiter, or "
                            f"leave such rows out with --bad-rows skip"
                        )
                    bad += 1
                else:
                    yield f"line {line}", dict(zip(columns, fields, strict=False))
            line = reader.line_num + offset + 1
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise ValueError(
                f"{file.name}, line {line}: a quotation mark opens here and is never closed: close "
                f"it, or write it twice if it belongs to the text"
            ) from None
        raise ValueError(f"{file.name}, line {line}: it cannot be read ({error})") from None
    if bad:
        file.notes.append(
            f"{bad:,} rows have too many or too few fields and were skipped (--bad-rows error "
            f"stops at them)"
        )


def _set_columns(file: TableFile, fields: list[str]) -> tuple[str, ...]:
    """Take the names of a header; a repeated name gets a number, so that no column is lost."""
    if len(fields) > MAX_COLUMNS:
        raise ValueError(
            f"{file.name}, line 1: it has {len(fields):,} columns, but at most {MAX_COLUMNS:,} are "
            f"read (MAX_COLUMNS): check --delimiter"
        )
    names: dict[str, None] = {}
    repeated = set()
    for number, field_name in enumerate(fields, start=1):
        shown = field_name.strip() or f"column {number}"
        if shown in names:
            repeated.add(shown)
            shown = f"{shown} (column {number})"
        names[shown] = None
    file.columns, file.repeated = tuple(names), frozenset(repeated)
    return file.columns


# --- .jsonl and .json ----------------------------------------------------------------------


def _jsonl(name: str, lines: Iterable[str]) -> Iterator[Record]:
    for line, each in enumerate(lines, start=1):
        if not each.strip():
            continue
        try:
            record = json.loads(each)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name}, line {line}: it is not JSON ({error})") from None
        if not isinstance(record, dict):
            raise ValueError(f"{name}, line {line}: it is {each[:40]}, but an object is needed")
        yield f"line {line}", record


def _json(file: TableFile, content: str, column: str) -> Iterator[Record]:
    try:
        items = json.loads(content)
    except (ValueError, RecursionError) as error:
        if "Extra data" in str(error) and content.lstrip().startswith("{"):
            file.notes.append(f"{file.name} has a JSON object on each line, as a .jsonl file has")
            yield from _jsonl(file.name, content.split("\n"))
            return
        raise ValueError(f"{file.name}: it is not JSON ({error})") from None
    items = _from_columns(items)
    if isinstance(items, dict) and len(held := _lists_of_objects(items)) == 1:
        file.notes.append(f"{file.name}: the rows are those of {held[0]!r:.60}")
        items = items[held[0]]
    if not isinstance(items, list):
        raise ValueError(
            f"{file.name}: it begins with {content.strip()[:20]!r}, but a list of texts or of "
            f"objects is needed"
        )
    for number, each in enumerate(items, start=1):
        if not isinstance(each, str | dict):
            raise ValueError(
                f"{file.name}, item {number}: it is {each!r:.40}, but a text or an object is needed"
            )
        yield f"item {number}", each if isinstance(each, dict) else {column: each}


def _lists_of_objects(items: dict[str, Any]) -> list[str]:
    """The names of the values that are rows, beside others that are not."""
    return [
        name
        for name, value in items.items()
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
    ]


def _from_columns(items: Any) -> Any:
    """Rows of an object of columns, as pandas writes it, or the one list that an object holds."""
    if not isinstance(items, dict) or not items:
        return items
    values = list(items.values())
    if all(isinstance(each, dict) for each in values):
        keys = values[0].keys()
        if any(each.keys() != keys for each in values):
            return items
        values = [[each[key] for key in keys] for each in values]
    if not all(isinstance(each, list) and len(each) == len(values[0]) for each in values):
        return items
    if len(values) == 1 and values[0] and isinstance(values[0][0], dict):
        return values[0]
    return [dict(zip(items, row, strict=True)) for row in zip(*values, strict=True)]


# --- .parquet and .xlsx --------------------------------------------------------------------


def _binary(path: Path, ending: str, options: TableFormat) -> TableFile:
    """A table that a library reads, from an optional extra."""
    if path.is_dir():
        raise ValueError(f"{path}: it is a folder, but one file is needed")
    if not path.exists():
        raise ValueError(f"{path}: there is no such file or folder (looked in {Path.cwd()})")
    if str(path).lower().endswith(".gz"):
        raise ValueError(f"{path}: a {ending} file is compressed already: unpack the .gz first")
    reader = {".parquet": _parquet, ".xlsx": _xlsx}[ending]
    try:
        return reader(path, options)
    except ImportError:
        library = {".parquet": "pyarrow", ".xlsx": "openpyxl"}[ending]
        raise ValueError(
            f"{path}: {ending} files are read by {library}: pip install 'clearformer[tables]', or "
            f"save the table as .csv"
        ) from None


def _parquet(path: Path, options: TableFormat) -> TableFile:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path)
        columns = tuple(table.schema_arrow.names)
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(path, "Parquet", error) from None

    def records() -> Iterator[Record]:
        number = 0
        try:
            for batch in table.iter_batches(1000):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
        except (pyarrow.ArrowException, OSError) as error:
            raise _damaged(path, "Parquet", error) from None

    return TableFile(str(path), records(), columns)


def _xlsx(path: Path, options: TableFormat) -> TableFile:
    import openpyxl

    _require_unpacked_size(path)
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        names = list(book.sheetnames)
    except Exception as error:  # whatever a damaged archive makes of its XML
        raise _damaged(path, "a spreadsheet", error) from None
    if options.sheet is not None and options.sheet not in names:
        raise ValueError(f"{path}: there is no sheet {options.sheet!r}: one of {listed(names)}")
    file = TableFile(str(path), iter(()))
    if len(names) > 1 and options.sheet is None:
        file.notes.append(
            f"{path} has {len(names)} sheets, and the first, {_printable(names[0])}, is read; "
            f"--sheet names another: {listed(names[1:])}"
        )
        file.hint = f"--sheet names another sheet: {listed(names[1:])}"
    elif options.sheet is None:
        file.hint = "check the header"
    sheet = book[options.sheet or names[0]]

    def records() -> Iterator[Record]:
        try:
            for number, cells in _below_title(file, _filled_rows(sheet)):
                if file.columns is None:
                    while cells and not cells[-1]:
                        cells.pop()
                    _set_columns(file, cells)
                else:
                    yield f"row {number}", dict(zip(file.columns, cells, strict=False))
        except ValueError:
            raise
        except Exception as error:
            raise _damaged(path, "a spreadsheet", error) from None
        finally:
            book.close()

    file.records = records()
    return file


NumberedRow = tuple[int, list[str]]


def _filled_rows(sheet: Any) -> Iterator[NumberedRow]:
    """The rows of a sheet that are not empty, with their numbers."""
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        cells = [_cell(value) for value in row]
        if any(cells):
            yield number, cells


def _below_title(file: TableFile, rows: Iterator[NumberedRow]) -> Iterator[NumberedRow]:
    """The rows from the header on: titles of one cell above a wider table are left out."""
    first = list(islice(rows, TITLE_ROWS))
    widths = [sum(map(bool, cells)) for _, cells in first]
    titles = 0
    if max(widths, default=0) > 1:
        titles = next(place for place, width in enumerate(widths) if width > 1)
    if titles:
        file.notes.append(
            f"{titles} {'row' if titles == 1 else 'rows'} above the header of {file.name} "
            f"{'is' if titles == 1 else 'are'} left out: {_printable(first[0][1][0] or '')!r}"
        )
    yield from first[titles:]
    yield from rows


def _cell(value: Any) -> str:
    """A cell as it is shown: 1 and not 1.0, a date without a time that it does not have."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    return "" if value is None else str(value)


def _require_unpacked_size(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(each.file_size for each in archive.infolist())
    except (zipfile.BadZipFile, OSError) as error:
        raise _damaged(path, "a spreadsheet", error) from None
    if size > limits.MAX_ARCHIVE_BYTES:
        raise ValueError(
            f"{path}: it unpacks to {size:,} bytes, but at most {limits.MAX_ARCHIVE_BYTES:,} are "
            f"read (MAX_ARCHIVE_BYTES): save it as .csv"
        )


def _damaged(path: Path, what: str, error: Exception) -> ValueError:
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    return ValueError(f"{path}: it cannot be read as {what} ({reason}): check it")


def text_of(name: str, where: str, column: str, value: Value) -> str:
    """A field as text; JSON, Parquet and spreadsheets also have numbers, booleans and dates."""
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, int | float):
        return json.dumps(value)
    if isinstance(value, datetime.date | datetime.time):
        return _cell(value)
    raise ValueError(
        f"{name}, {where}: column {column!r} holds {value!r:.60}, but a text is needed"
    )
