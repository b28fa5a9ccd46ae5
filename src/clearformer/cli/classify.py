"""`clearformer classify RUN "a text"`: the class of a text, or of every row of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from clearformer.cli.inputs import given_table, tell_cut
from clearformer.cli.output import say


@dataclass(frozen=True)
class Classify:
    """Tell the class of texts with a trained classifier."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), or one of its checkpoints."""
    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to classify; - or none: the lines that are piped in."""
    file: Path | None = None
    """A .csv, .tsv, .jsonl or .json table, or a text file with a text on each line."""
    text: str | None = None
    """Column of the texts, in a table; none: as in training."""
    out: Path | None = None
    """Write a table with the probability of each class here (.csv, .tsv, .jsonl or .json); none: to
    the terminal."""

    def run(self) -> None:
        from clearformer import data
        from clearformer.cli.generated import note
        from clearformer.cli.tables import require_place
        from clearformer.config import Classifier
        from clearformer.data.rows import count_truncated
        from clearformer.data.write_tables import require_extension, require_fields
        from clearformer.explore.model_info import tasks
        from clearformer.runs.load import open_run
        from clearformer.tasks.evaluate import predict

        require_place(self.out, self.file)
        if self.out is not None:
            require_extension(self.out)
        opened = open_run(self.run_folder)
        head = opened.config.model.head
        if not isinstance(head, Classifier):
            verb = tasks(opened.config.model)[0]
            raise ValueError(f"{self.run_folder} is no classifier: use clearformer {verb}")
        if head.names is None:
            raise ValueError(f"{self.run_folder} has no names for its classes: train it first")
        table = given_table(self.texts, self.file, self.text or opened.config.data.text)
        note(opened.note)
        if self.out is not None:
            require_fields(self.out, (*head.names, *table.texts))
        rows = data.encode_rows(table, opened.tokenizer, head.names)
        guesses = predict(opened.model, rows, opened.config).tolist()
        labels = [head.names[row.index(max(row))] for row in guesses]
        length = opened.config.model.length
        tell_cut(count_truncated(rows, length), len(rows), length)
        found = [
            (text, label, dict(zip(head.names, row, strict=True)))
            for text, label, row in zip(table.texts, labels, guesses, strict=True)
        ]
        if self.out is not None:
            data.write_table(
                self.out,
                [
                    {
                        "text": text,
                        "label": label,
                        "probabilities": {name: round(share, 6) for name, share in shares.items()},
                    }
                    for text, label, shares in found
                ],
            )
            say(f"{len(table):,} texts: {self.out}")
            return
        for text, label, shares in found:
            listed = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
            shown = text if len(text) <= 60 else f"{text[:59]}…"
            say(f"{label}  ({listed})  {shown!r}")
