"""Reads texts one by one: lines of a file or of standard input, or a table's column."""

import os
from collections.abc import Iterator

from clearformer.data.files import open_text
from clearformer.data.tables import READ, Table, ending_of, read_table

# TextSource, too, but its lines are no texts.
NOT_LINES = (".ndjson", ".xml", ".html", ".yaml", ".yml", ".parquet", ".xlsx")


def read_texts(source: str | os.PathLike[str], column: str = "text") -> Table:
    """The texts of a file by its ending: a column of a table, or else one a line; `-` is stdin.

    Every line must be a text, so that row i of the answer is line i.
    """
    table = table_column(source, column)
    if table is not None:
        return table
    name, found = text_lines(source)
    texts = tuple(found)
    while len(texts) > 1 and not texts[-1]:  # a file may end in empty lines
        texts = texts[:-1]
    for place, line in enumerate(texts, start=1):
        if not line.strip():
            raise ValueError(f"{name}, line {place} is empty, but every line must be a text")
    return Table(name, texts, None)


def table_column(source: str | os.PathLike[str], column: str) -> Table | None:
    """The column of a table; None where the name is not that of a table."""
    name = os.fspath(source)
    return read_table(name, column, None) if ending_of(name) in READ else None


def text_lines(source: str | os.PathLike[str]) -> tuple[str, Iterator[str]]:
    """The name of a text and its lines as they are read, empty ones too."""
    name = os.fspath(source)
    ending = ending_of(name)
    if ending in NOT_LINES:
        raise ValueError(
            f"{name}: a {ending} file is not read: give a {', '.join(READ)} table, or a text file "
            f"with a text on each line"
        )
    text = open_text(name)

    def found() -> Iterator[str]:
        rest = ""
        for chunk in text.decoded():
            # Only a line feed ends a line: a text may have what others take for an end.
            *whole, rest = (rest + chunk).split("\n")
            yield from (line.removesuffix("\r") for line in whole)
        if rest:
            yield rest.removesuffix("\r")

    return text.name, found()
