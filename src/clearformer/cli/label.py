"""`clearformer label RUN "Mary lives in Paris"`: a label for each word of a text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from clearformer.cli.inputs import given_table
from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import say, write_json


@dataclass(frozen=True)
class Label(ModelCommand):
    """Label each word of texts with a trained token classifier: names, parts of speech."""

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to label; - or none: the lines that are piped in."""
    file: Path | None = None
    """A .csv, .tsv, .jsonl or .json table, or a text file with a text on each line."""
    text: str = "text"
    """Column of the texts, in a table."""
    out: Path | None = None
    """Write words and labels here: .jsonl or .json with two lists for each text, or .conll with a
    word and its label on each line; none: to the terminal."""
    json: bool = False
    """Print every text as a line of JSON."""

    def run(self) -> None:
        from clearformer import data
        from clearformer.cli.tables import require_place
        from clearformer.data.write_tables import require_extension
        from clearformer.tasks.token_labels import label_names

        require_place(self.out, self.file)
        if self.json and self.out is not None:
            raise ValueError("give either --json or --out, and not both")
        if self.out is not None:
            require_extension(self.out, (".jsonl", ".json", ".conll"))
        model = self.load()
        label_names(model.run_config, self.run_folder)
        found = model.label(list(given_table(self.texts, self.file, self.text).texts))
        assert isinstance(found, list)
        if self.json:
            for each in found:
                write_json({**each.row(), "probabilities": list(each.probabilities)})
            return
        if self.out is None:
            for each in found:
                width = max((len(word) for word in each.words), default=0)
                for word, label, chance in zip(
                    each.words, each.labels, each.probabilities, strict=True
                ):
                    say(f"{word:{width}}  {label}  {chance:.3f}")
                say()
            return
        if self.out.suffix == ".conll":
            lines = (
                "".join(f"{word}\t{label}\n" for word, label in zip(*pair, strict=True))
                for pair in ((each.words, each.labels) for each in found)
            )
            self.out.write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")
        else:
            data.write_table(self.out, [each.row() for each in found])
        say(f"{len(found):,} texts: {self.out}")
