"""`clearformer classify RUN "a text"`: the class of a text, or of every row of a file.

`clearformer predict` is the same for any such model: a class, several labels, or a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from clearformer.cli.inputs import given_table, tell_cut
from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import say, tell, write_json
from clearformer.table_options import LabelledFormat, TableFormat

if TYPE_CHECKING:
    from clearformer.data import Table
    from clearformer.model import Model
    from clearformer.tasks.target import TextResult


@dataclass(frozen=True)
class Classify(ModelCommand):
    """Classify texts with a trained classifier."""

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to classify; - or none: the lines that are piped in."""
    file: Path | None = None
    """A table (.csv, .tsv, .jsonl, .json, .xlsx or .parquet), or a text file with a text on each
    line."""
    text: str | None = None
    """Column of the texts, in a table; none: as in training."""
    second: str | None = None
    """The second text of a pair, if one text is given; with --file, the column of the second
    texts; none: as in training."""
    out: Path | None = None
    """Write a table here (.csv, .tsv, .jsonl or .json): every column of --file, then predicted and
    probability; none: to the terminal."""
    probabilities: bool = False
    """In the table, add a column with the probability of each class."""
    threshold: float | None = None
    """Leave predicted empty where no class has this probability; none: always the likeliest. With
    several labels: give those with at least this probability; none: one half."""
    json: bool = False
    """Print every text as a line of JSON."""
    table: TableFormat = TableFormat()

    def run(self) -> None:
        from clearformer.cli.tables import require_place
        from clearformer.data.write_tables import require_extension

        require_place(self.out, self.file)
        if self.out is not None:
            require_extension(self.out)
        if self.json and self.out is not None:
            raise ValueError("give either --json or --out, and not both")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ValueError(f"--threshold is {self.threshold:g}, but it must be from 0 to 1")
        model = self.load()
        self._require_kind(model)
        column = self.text or model.run_config.data.text_column
        given, seconds = self._given(model, column)
        for note in given.notes:
            tell(f"note: {note}")
        filled = [row for row, text in enumerate(given.texts) if text.strip()]
        found = self._classify(model, given, seconds, filled)
        tell_cut(sum(each.cut for each in found), len(found), model.config.length)
        if len(filled) < len(given):
            empty = len(given) - len(filled)
            tell(f"note: {empty:,} of {len(given):,} texts are empty and have no prediction")
        by_row = dict(zip(filled, found, strict=True))
        if self.out is not None:
            self._write(self.out, given, seconds, by_row)
        elif self.json:
            for each in found:
                write_json({**each.texts, **each.answer(self.threshold)})
        else:
            for each in found:
                shown = each.text if len(each.text) <= 60 else f"{each.text[:59]}…"
                say(f"{each.line(self.threshold)}  {shown!r}")

    def _require_kind(self, model: Model) -> None:
        """Refuse what this kind of model has no answer to."""
        from clearformer.tasks.classification import class_names

        class_names(model.run_config, self.run_folder)

    def _given(self, model: Model, column: str) -> tuple[Table, Sequence[str] | None]:
        """The texts and, for pairs, the second text of each."""
        from clearformer import data

        options = LabelledFormat(empty="keep", **asdict(self.table))
        if self.second is None and not model.config.head.two_texts:
            return given_table(self.texts, self.file, column, options), None
        if self.file is not None:
            second = self.second or model.run_config.data.second_column
            firsts = data.read_table(self.file, column, None, options)
            others = data.read_table(self.file, second, None, options, ("--second", ""))
            return firsts, others.texts
        if self.second is None or len(self.texts) != 1:
            raise ValueError(
                "a pair is one text and --second, its second text; a table of pairs is a --file"
            )
        return data.Table("the given texts", self.texts, None), (self.second,)

    def _classify(
        self, model: Model, given: Table, seconds: Sequence[str] | None, rows: Sequence[int]
    ) -> list[TextResult]:
        if seconds is None:
            return model.predict([given.texts[row] for row in rows])
        pairs: Any = [(given.texts[row], seconds[row]) for row in rows]
        return model.predict(pairs)

    def _write(
        self,
        out: Path,
        given: Table,
        seconds: Sequence[str] | None,
        found: Mapping[int, TextResult],
    ) -> None:
        from clearformer import data
        from clearformer.tasks.predictions import prediction_rows

        records: Sequence[Mapping[str, object]] = [{"text": text} for text in given.texts]
        if seconds is not None:
            both = zip(given.texts, seconds, strict=True)
            records = [{"text": text, "second": second} for text, second in both]
        if given.rows is not None and self.file is not None:
            _, every = data.all_records(self.file, self.table)
            records = [every[row] for row in given.rows]
        predictions = [
            found[row].prediction if row in found else None for row in range(len(records))
        ]
        rows = prediction_rows(
            records, predictions, probabilities=self.probabilities, threshold=self.threshold
        )
        data.write_table(out, rows)
        say(f"{len(found):,} texts: {out}")


@dataclass(frozen=True)
class Predict(Classify):
    """Predict a class, several labels or a number for texts, whatever the model was trained for."""

    def _require_kind(self, model: Model) -> None:
        from clearformer.tasks.registry import target_of

        target_of(model.config, self.run_folder).names(model.run_config, self.run_folder)
        if "classify" not in model.config.verbs:
            for flag in ("probabilities", "threshold"):
                if getattr(self, flag) not in (None, False):
                    raise ValueError(f"--{flag} is for classifiers: leave it out")
