"""Writes tables as .csv, .tsv, .jsonl or .json, by the file extension."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from clearformer.data.read_texts import NOT_LINES
from clearformer.data.tables import Pairs
from clearformer.escape import json_line

WRITTEN = (".csv", ".tsv", ".jsonl", ".json")
Row = Mapping[str, object]  # a field may be a mapping: in .csv and .tsv each of its own is a column


def require_extension(path: Path, endings: Sequence[str] = WRITTEN) -> None:
    """Refuse a name whose ending does not say what to write, before any work is done for it."""
    if path.suffix.lower() not in endings:
        raise ValueError(f"{path} must end in {', '.join(endings[:-1])} or {endings[-1]}")


def require_fields(path: Path, fields: Sequence[str]) -> None:
    """Refuse texts that a .tsv has no way to hold: it has no quotes."""
    if path.suffix.lower() != ".tsv":
        return
    for field in fields:
        if any(each in field for each in "\t\r\n"):
            raise ValueError(
                f"{path} cannot hold {field!r:.60}, which has a tab or a line break: write a .csv "
                f"or a .jsonl"
            )


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows, all with the same fields, as the ending of the path says."""
    require_extension(path)
    ending = path.suffix.lower()
    if ending == ".json":
        content = json.dumps(rows, ensure_ascii=False, indent=1) + "\n"
    elif ending == ".jsonl":
        content = "".join(f"{json_line(row)}\n" for row in rows)
    else:
        content = _delimited(path, [_flat(row) for row in rows])
    # Half of a surrogate pair cannot be written; a text from the command line may have one.
    path.write_text(content, encoding="utf-8", errors="backslashreplace", newline="")


def _delimited(path: Path, rows: Sequence[Sequence[tuple[str, object]]]) -> str:
    lines = [[name for name, _ in row] for row in rows[:1]]
    lines += [[_shown(value) for _, value in row] for row in rows]
    for line in lines:
        require_fields(path, line)
    if path.suffix.lower() == ".tsv":
        return "".join("\t".join(line) + "\n" for line in lines)
    made = io.StringIO(newline="")
    csv.writer(made).writerows(lines)
    return made.getvalue()


def _flat(row: Row) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, value in row.items():
        found += value.items() if isinstance(value, Mapping) else [(name, value)]
    return found


def _shown(value: object) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def require_lines_or_table(path: Path) -> None:
    """Refuse an ending that promises something other than lines of text or a table."""
    if path.suffix.lower() in NOT_LINES:
        raise ValueError(
            f"{path}: a {path.suffix} file is not written: use {', '.join(WRITTEN)} for a table, "
            f"or .txt for a text on each line"
        )


def write_translations(path: Path, pairs: Pairs, translations: Sequence[str]) -> None:
    """A line for each translation; in a table with its source and its target."""
    if path.suffix.lower() in WRITTEN:
        sides = zip(pairs.sources, pairs.targets, translations, strict=True)
        names = ("source", "target", "translation")
        write_table(path, [dict(zip(names, row, strict=True)) for row in sides])
    else:
        path.write_text("".join(f"{text}\n" for text in translations), encoding="utf-8")
