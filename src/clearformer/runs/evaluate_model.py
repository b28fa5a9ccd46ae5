"""Evaluation of an opened model, with what the user should know about the figures."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearformer import data
from clearformer.config import RunConfig
from clearformer.inference.shared_copy import shared_copy
from clearformer.inference.weights import QUANTIZERS
from clearformer.runs.checkpoint import Checkpoint
from clearformer.runs.contamination import lineage
from clearformer.runs.contamination import notes as contamination_notes
from clearformer.runs.load import SOURCE_RUN, has_int8, open_run, require_floats
from clearformer.tasks.registry import task_of_run
from clearformer.tasks.task import EvaluationData, EvaluationOptions, EvaluationRequest, Report
from clearformer.text import Tokenizer

OWN_PARTS = ("validation", "train")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a model, the report of its task, and notes on how far to trust them.

    Attributes:
        metrics (dict): Numbers by name, such as ``{"loss": 0.31, "accuracy": 0.88}``.
        report (Report): What the task measured; a classifier's has the confusion matrix, for
            example.
        in_float32 (Report, optional): The same of the model in float32, if it is in int8.
        notes (tuple of str): What was trained on, skipped or changed.
    """

    report: Report
    in_float32: Report | None = None
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def metrics(self) -> dict[str, float]:
        return self.report.metrics

    def lines(self) -> list[str]:
        """The report as `clearformer evaluate` prints it."""
        return self.report.lines(self.in_float32)

    def document(self) -> dict[str, object]:
        """The report as JSON, with the notes."""
        before = {} if self.in_float32 is None else {"in_float32": self.in_float32.document()}
        return {**self.report.document(), **before, "notes": list(self.notes)}

    def rows(
        self, *, probabilities: bool = False, worst_first: bool = False
    ) -> list[dict[str, object]]:
        """Of a classifier: every text with all columns of its table, and what was predicted.

        Args:
            probabilities (bool): Add a column for each class. Default: False.
            worst_first (bool): Put the most confident mistakes first. Default: False.

        Returns:
            list of dict: The columns, then ``predicted``, ``probability`` and ``correct``.
        """
        return self.report.table_rows(probabilities=probabilities, worst_first=worst_first)

    def write(
        self,
        path: str | os.PathLike[str],
        *,
        probabilities: bool = False,
        worst_first: bool = False,
    ) -> None:
        """Write `rows` as a .csv, .tsv, .jsonl or .json table."""
        rows = self.rows(probabilities=probabilities, worst_first=worst_first)
        data.write_table(Path(path), rows)

    def __str__(self) -> str:
        return "\n".join([*(f"note: {note}" for note in self.notes), *self.lines()])


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model: `prepare` reads the data, `measure` computes the metrics."""

    model: Any
    config: RunConfig
    tokenizer: Tokenizer
    options: EvaluationOptions
    places: data.DataFolders
    name: object = None  # of the model, in messages
    checkpoint: Checkpoint | None = None  # None: a model that was not opened from a run

    def prepare(self, say: Say) -> EvaluationData:
        """Read the data; `say` gets the notes on it."""
        self._require_part()
        manifest = {} if self.checkpoint is None else self.checkpoint.manifest
        identity = manifest.get("data")
        prepared = task_of_run(self.config).evaluation_data(
            EvaluationRequest(
                self.config,
                self.tokenizer,
                self.options,
                self.places,
                identity if isinstance(identity, str) else None,
            )
        )
        for note in prepared.notes:
            say(note)
        if self.options.own_part == 0:
            say("these figures are of the data that the run was trained on")
        if self.checkpoint is not None:
            known = lineage(self.checkpoint, self.config)
            held_back = self.options.own_part is not None
            for each in contamination_notes(
                known, prepared.material, self.places, held_back=held_back
            ):
                say(each)
        return prepared

    def measure(
        self,
        prepared: EvaluationData,
        say: Say,
        *,
        weights: str = "float32",
        against: Path | None = None,
    ) -> Evaluation:
        """Compute the metrics; with quantized weights, beside those of the model in float32."""
        task, notes = task_of_run(self.config), list[str]()

        def note(sentence: str) -> None:
            notes.append(sentence)
            say(sentence)

        before = None
        if (floats := self._in_float32(weights, against, note)) is not None:
            before = task.measure(floats, prepared)
        model = self.model
        if weights != "float32":
            QUANTIZERS[weights](model := shared_copy(model))
        return Evaluation(task.measure(model, prepared), before, notes=tuple(notes))

    def _require_part(self) -> None:
        options, source = self.options, self.config.data.source
        if options.data is None and options.part not in OWN_PARTS and source not in data.CORPORA:
            raise ValueError(
                f"`part` is {options.part}, but {source} is not a corpus and has only the parts "
                f"{' and '.join(OWN_PARTS)} of the run: choose one of them, or give other `data`"
            )

    def _in_float32(self, weights: str, against: Path | None, note: Say) -> Any:
        """The model in float32 to measure beside a quantized one, if there is one."""
        if "translate" in self.config.model.verbs:
            if weights != "float32" or against is not None:
                name = "weights" if weights != "float32" else "against"
                raise ValueError(f"`{name}` is for models of one stack: leave it out")
            return None
        quantized = self.checkpoint is not None and has_int8(self.checkpoint)
        if not quantized:
            if against is not None:
                raise ValueError(
                    f"`against` is {against}, but {self.name} is not a run in int8: leave it out"
                )
            return None if weights == "float32" else self.model
        assert self.checkpoint is not None
        source = against or Path(str(self.checkpoint.manifest.get(SOURCE_RUN)))
        try:
            other = open_run(source)
        except ValueError:
            if against is not None:
                raise
            note(f"{source} is gone, so int8 cannot be compared with float32: see `against`")
            return None
        require_floats(other.checkpoint)
        if other.config.model != self.config.model:
            raise ValueError(f"{source} is another model than {self.name} was made from")
        return other.model
