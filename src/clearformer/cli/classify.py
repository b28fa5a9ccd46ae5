"""`clearformer classify RUN "a text"`: the class of a text, or of every row of a file."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

if TYPE_CHECKING:
    from clearformer.data import Table


@dataclass(frozen=True)
class Classify:
    """Tell the class of texts with a trained classifier."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), or one of its checkpoints."""
    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to classify."""
    file: Path | None = None
    """A .csv, .tsv or .jsonl table, or a text file with a text on each line."""
    text: str | None = None
    """Column of the texts, in a table; none: as in training."""
    out: Path | None = None
    """Write a table with the probability of each class here; none: to the terminal."""

    def run(self) -> None:
        from clearformer import data
        from clearformer.cli.show import require_place
        from clearformer.config import Classifier
        from clearformer.explore.about import tasks
        from clearformer.train.evaluate import predict
        from clearformer.train.folder import open_run

        if bool(self.texts) == (self.file is not None):
            raise ValueError("give either texts or --file, and not both")
        require_place(self.out, self.file)
        opened = open_run(self.run_folder)
        head = opened.config.model.head
        if not isinstance(head, Classifier):
            verb = tasks(opened.config.model)[0]
            raise ValueError(f"{self.run_folder} is no classifier: use clearformer {verb}")
        if head.names is None:
            raise ValueError(f"{self.run_folder} has no names for its classes: train it first")
        table = table_of(self.texts, self.file, self.text or opened.config.data.text)
        rows = data.encode_rows(table, opened.tokenizer, head.names)
        guesses = predict(opened.model, rows, opened.config)
        if self.out is not None:
            with self.out.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["text", "label", *head.names])
                for text, row in zip(table.texts, guesses.tolist(), strict=True):
                    label = head.names[row.index(max(row))]
                    writer.writerow([text, label, *(f"{p:.6f}" for p in row)])
            print(f"{len(table):,} texts: {self.out}")
            return
        for text, row in zip(table.texts, guesses.tolist(), strict=True):
            shares = ", ".join(f"{n} {p:.3f}" for n, p in zip(head.names, row, strict=True))
            label = head.names[row.index(max(row))]
            shown = text if len(text) <= 60 else f"{text[:59]}…"
            sys.stdout.write(f"{label}  ({shares})  {shown!r}\n")


def table_of(texts: tuple[str, ...], file: Path | None, column: str) -> Table:
    """Texts from the command line, from a table, or from the lines of a text file."""
    from clearformer import data

    if file is None:
        return data.Table("the given texts", texts, None)
    if data.is_table(str(file)):
        return data.read_table(file, column, None)
    # Only a line feed ends a line, and none is left out: row i of the answer is line i.
    lines = "".join(data.open_text(file).decoded()).rstrip("\n").split("\n")
    found = tuple(line.removesuffix("\r") for line in lines)
    for place, line in enumerate(found, start=1):
        if not line.strip():
            raise ValueError(f"{file}, line {place} is empty, but every line must be a text")
    return data.Table(str(file), found, None)
