"""Reads texts one by one: lines of a file or of standard input, or a table's column."""

import os
from collections.abc import Iterator

from clearformer.data.files import open_text
from clearformer.data.tables import READ_EXTENSIONS, Table, ending_of, read_table
from clearformer.table_options import EARLIER, LabelledFormat

# Extensions of files whose lines are not texts.
NOT_LINES = (".xml", ".html", ".yaml", ".yml", ".xls", ".ods", ".docx", ".pdf")


def read_texts(
    source: str | os.PathLike[str], column: str = "text", options: LabelledFormat = EARLIER
) -> Table:
    """The texts of a file: a column of a table, or one text per line; `-` is standard input.

    Empty lines are an error, so that row i of the result is line i.
    """
    table = table_column(source, column, options, flag="--text")
    if table is not None:
        return table
    name, lines = text_lines(source)
    texts = tuple(lines)
    while len(texts) > 1 and not texts[-1]:  # a file may end in empty lines
        texts = texts[:-1]
    for number, line in enumerate(texts, start=1):
        if not line.strip():
            raise ValueError(f"{name}, line {number} is empty, but every line must be a text")
    return Table(name, texts, None)


def table_column(
    source: str | os.PathLike[str],
    column: str,
    options: LabelledFormat = EARLIER,
    flag: str = "",
) -> Table | None:
    """The column of a table, which `flag` names; None if the file is not a table."""
    name = os.fspath(source)
    if ending_of(name) not in READ_EXTENSIONS:
        return None
    return read_table(name, column, None, options, (flag, ""))


def text_lines(source: str | os.PathLike[str]) -> tuple[str, Iterator[str]]:
    """The name of a text, and an iterator over its lines, including empty ones."""
    name = os.fspath(source)
    ending = ending_of(name)
    if ending in NOT_LINES:
        raise ValueError(
            f"{name}: a {ending} file cannot be read: use a table "
            f"({', '.join(READ_EXTENSIONS)}) or a text file with a text on each line"
        )
    text = open_text(name)

    def lines() -> Iterator[str]:
        rest = ""
        for chunk in text.decoded():
            # Only a line feed ends a line, unlike in str.splitlines.
            *complete, rest = (rest + chunk).split("\n")
            yield from (line.removesuffix("\r") for line in complete)
        if rest:
            yield rest.removesuffix("\r")

    return text.name, lines()
