"""Writes tables as .csv, .tsv, .jsonl or .json, by the file extension."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from clearformer.data.read_texts import NOT_LINES
from clearformer.data.table_files import ENDINGS
from clearformer.data.tables import Pairs
from clearformer.escape import json_line

WRITE_EXTENSIONS = (".csv", ".tsv", ".jsonl", ".json")
Record = Mapping[str, object]  # a nested mapping becomes several columns in .csv and .tsv


def require_extension(path: Path, endings: Sequence[str] = WRITE_EXTENSIONS) -> None:
    """ValueError for a file with another extension."""
    if path.suffix.lower() not in endings:
        raise ValueError(f"{path} must end in {', '.join(endings[:-1])} or {endings[-1]}")


def require_fields(path: Path, fields: Sequence[str]) -> None:
    """ValueError for texts that a .tsv cannot contain, since it has no quoting."""
    if path.suffix.lower() != ".tsv":
        return
    for field in fields:
        if any(each in field for each in "\t\r\n"):
            raise ValueError(
                f"{path} cannot contain {field!r:.60}, which has a tab or a line break: use .csv "
                f"or .jsonl"
            )


def write_table(path: Path, rows: Sequence[Record]) -> None:
    """Write the rows, all with the same fields, in the format of the file extension."""
    require_extension(path)
    ending = path.suffix.lower()
    if ending == ".json":
        content = json.dumps(rows, ensure_ascii=False, indent=1) + "\n"
    elif ending == ".jsonl":
        content = "".join(f"{json_line(row)}\n" for row in rows)
    else:
        content = _delimited(path, [_flat(row) for row in rows])
    # A text from the command line may have lone surrogates, which cannot be encoded.
    path.write_text(content, encoding="utf-8", errors="backslashreplace", newline="")


def _delimited(path: Path, rows: Sequence[Sequence[tuple[str, object]]]) -> str:
    lines = [[name for name, _ in row] for row in rows[:1]]
    lines += [[_shown(value) for _, value in row] for row in rows]
    for line in lines:
        require_fields(path, line)
    if path.suffix.lower() == ".tsv":
        return "".join("\t".join(line) + "\n" for line in lines)
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows(lines)
    return buffer.getvalue()


def _flat(row: Record) -> list[tuple[str, object]]:
    fields: list[tuple[str, object]] = []
    for name, value in row.items():
        fields += value.items() if isinstance(value, Mapping) else [(name, value)]
    return fields


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def require_lines_or_table(path: Path) -> None:
    """ValueError for an extension of neither a text nor a table."""
    unwritten = {*NOT_LINES, *ENDINGS} - {*WRITE_EXTENSIONS}
    if path.suffix.lower() in unwritten:
        raise ValueError(
            f"{path}: a {path.suffix} file cannot be written: use "
            f"{', '.join(WRITE_EXTENSIONS)} for a table, or .txt for a text on each line"
        )


def write_translations(path: Path, pairs: Pairs, translations: Sequence[str]) -> None:
    """Write a line for each translation; in a table, with its source and target."""
    if path.suffix.lower() in WRITE_EXTENSIONS:
        sides = zip(pairs.sources, pairs.targets, translations, strict=True)
        names = ("source", "target", "translation")
        write_table(path, [dict(zip(names, row, strict=True)) for row in sides])
    else:
        path.write_text("".join(f"{text}\n" for text in translations), encoding="utf-8")
