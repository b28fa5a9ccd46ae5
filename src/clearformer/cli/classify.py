"""`clearformer classify RUN "a text"`: the class of a text, or of every row of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from clearformer.cli.inputs import given_table, tell_cut
from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import say

if TYPE_CHECKING:
    from clearformer.model import Model


@dataclass(frozen=True)
class Classify(ModelCommand):
    """Classify texts with a trained classifier."""

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to classify; - or none: the lines that are piped in."""
    file: Path | None = None
    """A .csv, .tsv, .jsonl or .json table, or a text file with a text on each line."""
    text: str | None = None
    """Column of the texts, in a table; none: as in training."""
    second: str | None = None
    """The second text of a pair, if one text is given; with --file, the column of the second
    texts; none: as in training."""
    out: Path | None = None
    """Write a table with the probability of each class here (.csv, .tsv, .jsonl or .json); none: to
    the terminal."""

    def run(self) -> None:
        from clearformer.cli.tables import require_place
        from clearformer.data.write_tables import require_extension, require_fields
        from clearformer.tasks.classification import class_names

        require_place(self.out, self.file)
        if self.out is not None:
            require_extension(self.out)
        model = self.load()
        names = class_names(model.run_config, self.run_folder)
        column = self.text or model.run_config.data.text_column
        if self.second is not None or model.config.head.two_texts:
            self._pairs(model, column)
            return
        texts = given_table(self.texts, self.file, column).texts
        if self.out is not None:
            require_fields(self.out, (*names, *texts))
        self._tell(model, model.classify(texts))

    def _pairs(self, model: Model, column: str) -> None:
        """Classify pairs: two texts of the command, or two columns of a table."""
        from clearformer import data

        if self.file is not None:
            names = column, self.second or model.run_config.data.second_column
            firsts, seconds = (data.read_table(self.file, name, None).texts for name in names)
        elif self.second is None or len(self.texts) != 1:
            raise ValueError(
                "a pair is one text and --second, its second text; a table of pairs is a --file"
            )
        else:
            firsts, seconds = self.texts, (self.second,)
        self._tell(model, model.classify(list(zip(firsts, seconds, strict=True))))

    def _tell(self, model: Model, found: Any) -> None:
        from clearformer import data

        tell_cut(sum(each.cut for each in found), len(found), model.config.length)
        if self.out is not None:
            data.write_table(self.out, [each.row() for each in found])
            say(f"{len(found):,} texts: {self.out}")
            return
        for each in found:
            listed = ", ".join(f"{name} {share:.3f}" for name, share in each.probabilities.items())
            shown = each.text if len(each.text) <= 60 else f"{each.text[:59]}…"
            say(f"{each.label}  ({listed})  {shown!r}")
