"""Reads source-target pairs: two parallel files, or a table of two columns."""

from collections.abc import Sequence
from pathlib import Path

from clearformer.data.files import read_file
from clearformer.data.tables import Pairs, is_table, read_table

EXAMPLES = "as in train.en,train.de, or a .csv, .tsv or .jsonl file"


def read_pairs(
    source: str, source_column: str = "source", target_column: str = "target"
) -> tuple[Pairs, tuple[str, ...]]:
    """The pairs in `source`, and notes for the user.

    Two files, separated by a comma, match line by line. A table has a column for each side; a .tsv
    without these column names has no header.
    """
    if Path(source).exists() and is_table(source):
        return _without_empty(*_table(source, source_column, target_column))
    if source.count(",") == 1 and not Path(source).exists():
        first, second = source.split(",")
        return _without_empty(aligned(first.strip(), second.strip()), ())
    if not Path(source).exists() and is_table(source):
        raise ValueError(f"{source}: there is no such file (looked in {Path.cwd()})")
    raise ValueError(f"{source}: pairs are read from two files, {EXAMPLES}")


def aligned(first: str, second: str) -> Pairs:
    """Pairs of line i of one file and line i of the other."""
    sources, targets = lines(first), lines(second)
    if len(sources) != len(targets):
        raise ValueError(
            f"{first} has {len(sources):,} lines and {second} {len(targets):,}, but they must "
            f"match line by line: {_first_difference(first, sources, second, targets)}"
        )
    return Pairs(f"{first},{second}", sources, targets)


def lines(path: str) -> tuple[str, ...]:
    """The lines of a file, stripped; empty ones are kept, so that pairs stay aligned."""
    text = "".join(read_file(Path(path)).decoded()).removesuffix("\n")
    return tuple(line.strip() for line in text.split("\n"))


def _first_difference(
    first: str, sources: Sequence[str], second: str, targets: Sequence[str]
) -> str:
    """The first line at which two files differ: an empty line on one side, or the end of one."""
    shorter = min(len(sources), len(targets))
    for number, (one, other) in enumerate(zip(sources, targets, strict=False), start=1):
        if bool(one) != bool(other):
            empty, full = (first, second) if other else (second, first)
            return f"line {number:,} is the first that is empty in {empty} and not in {full}"
    longer, rest = (first, sources) if len(sources) > shorter else (second, targets)
    return (
        f"the first line without a partner is line {shorter + 1:,} of {longer}, "
        f"{rest[shorter][:40]!r}"
    )


def _table(path: str, source_column: str, target_column: str) -> tuple[Pairs, tuple[str, ...]]:
    if path.lower().removesuffix(".gz").endswith(".tsv"):
        text = "".join(read_file(Path(path)).decoded())
        rows = [
            (number, line.removesuffix("\r").split("\t"))
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip()
        ]
        first = rows[0][1] if rows else []
        if len(first) == 2 and not {source_column, target_column} <= set(first):
            return _bare(path, rows, source_column, target_column)
    sides = [
        read_table(path, column, None, flags=(flag, "")).texts
        for column, flag in (
            (source_column, "--source-column"),
            (target_column, "--target-column"),
        )
    ]
    sources, targets = (tuple(text.strip() for text in side) for side in sides)
    return Pairs(path, sources, targets), ()


def _bare(
    path: str, rows: Sequence[tuple[int, Sequence[str]]], source_column: str, target_column: str
) -> tuple[Pairs, tuple[str, ...]]:
    """A .tsv without a header."""
    for number, row in rows:
        if len(row) != 2:
            raise ValueError(f"{path}, line {number}: it has {len(row)} fields, but a pair has 2")
    note = (
        f"{path} names no columns {source_column!r} and {target_column!r}, so its first line is "
        f"a pair: {rows[0][1][0][:40]!r} -> {rows[0][1][1][:40]!r}"
    )
    sources, targets = zip(*((one.strip(), other.strip()) for _, (one, other) in rows), strict=True)
    return Pairs(path, sources, targets), (note,)


def _without_empty(pairs: Pairs, notes: tuple[str, ...]) -> tuple[Pairs, tuple[str, ...]]:
    """Only pairs without an empty side, and a note on the others."""
    sides = zip(pairs.sources, pairs.targets, strict=True)
    kept = [row for row, (one, other) in enumerate(sides) if one and other]
    left_out = sorted(set(range(len(pairs))) - set(kept))
    if not kept:
        raise ValueError(f"{pairs.name}: every pair has an empty side")
    if left_out:
        notes += (
            f"{len(left_out):,} of {len(pairs):,} pairs have an empty side and are left out "
            f"(the first: {left_out[0] + 1:,})",
        )
    return pairs.select(kept), notes
