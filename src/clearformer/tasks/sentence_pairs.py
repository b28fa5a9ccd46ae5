"""Classification of sentence pairs: a model learns the label of two texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clearformer import data
from clearformer.config import DataConfig, PairClassifier, RunConfig
from clearformer.core.model import Transformer
from clearformer.data.examples import Example, Examples, cut_pair, pair_layout, stacked
from clearformer.data.rows import IGNORE, label_ids
from clearformer.tasks.class_report import ClassReport, report
from clearformer.tasks.classification import Classification, class_names
from clearformer.tasks.examples import ExampleTask, LoadedExamples, row_logits, split
from clearformer.tasks.measured import Measured
from clearformer.tasks.sources import bytes_of, tokenizer_for
from clearformer.tasks.task import EvaluationData, EvaluationRequest, LoadedTask, Material
from clearformer.text import Tokenizer

Pair = tuple[str, str]


@dataclass(frozen=True)
class TextPairs:
    """Pairs of texts with labels."""

    name: str
    pairs: tuple[Pair, ...]
    labels: tuple[str, ...]
    rows: tuple[int, ...] | None = None  # where each is in the file

    def __len__(self) -> int:
        return len(self.pairs)

    def select(self, rows: Sequence[int]) -> TextPairs:
        """Only these pairs, in this order."""
        kept = tuple(self.pairs[row] for row in rows), tuple(self.labels[row] for row in rows)
        places = None if self.rows is None else tuple(self.rows[row] for row in rows)
        return TextPairs(self.name, *kept, places)

    @property
    def texts(self) -> tuple[str, ...]:
        """Both texts of each pair, on two lines."""
        return tuple("\n".join(pair) for pair in self.pairs)

    @property
    def table(self) -> data.Table:
        return data.Table(self.name, self.texts, self.labels, self.rows)


def read_text_pairs(path: str, text: str, second: str, label: str) -> TextPairs:
    """The pairs of a table, by the names of its columns."""
    table, others = data.read_table(path, text, label), data.read_table(path, second, None)
    assert table.labels is not None
    pairs = tuple(zip(table.texts, others.texts, strict=True))
    return TextPairs(table.name, pairs, tuple(table.labels), table.rows)


# --- the verb ------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairClassification(Classification):
    """Two texts with their most likely class and the probability of each class."""

    second: str

    @property
    def texts(self) -> dict[str, str]:
        """What was classified, by column."""
        return {"text": self.text, "second": self.second}


def classify_pairs(
    model: Transformer,
    config: RunConfig,
    tokenizer: Tokenizer,
    pairs: Sequence[Pair],
    name: object = None,
) -> list[PairClassification]:
    """The class of each pair of texts; `name` is the model's in error messages."""
    names = class_names(config, name)
    if not pairs:
        return []
    examples, cut = encode_pairs(pairs, [IGNORE] * len(pairs), tokenizer, config.model.length)
    probabilities = predict(model, examples, config).tolist()
    return [
        PairClassification(
            first, names[row.index(max(row))], dict(zip(names, row, strict=True)), was_cut, second
        )
        for (first, second), row, was_cut in zip(pairs, probabilities, cut, strict=True)
    ]


def encode_pairs(
    pairs: Sequence[Pair], labels: Sequence[int], tokenizer: Tokenizer, length: int
) -> tuple[Examples, list[bool]]:
    """Pairs as rows of at most `length` tokens, and which of them were cut."""
    layout = pair_layout(tokenizer)
    capacity = length - layout.marks
    if capacity < 2:
        raise ValueError(f"the length is {length}, but a pair needs at least {layout.marks + 2}")
    firsts, seconds = (tokenizer.encode_many(list(side)) for side in zip(*pairs, strict=True))
    rows, cut = [], []
    for first, second, label in zip(firsts, seconds, labels, strict=True):
        kept = cut_pair(len(first), len(second), capacity)
        cut.append(sum(kept) < len(first) + len(second))
        tokens, segments = layout.join(first[: kept[0]].tolist(), second[: kept[1]].tolist())
        rows.append(Example(tokens, segments, np.array(label, dtype=np.int64)))
    return Examples(tuple(rows), stacked, tokenizer.padding), cut


def predict(
    model: Transformer, examples: Examples, config: RunConfig, batch_size: int = 32
) -> Tensor:
    """Probabilities of each class for each row: (rows, C)."""
    return torch.stack(row_logits(model, examples, config, batch_size)).softmax(dim=-1)


# --- the objective -------------------------------------------------------------------------


class LabelledPairs(LoadedExamples):
    """A table of pairs with their labels."""

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        training, validation = _parts(config)
        self.names = data.label_names(training.table)
        tokenizer, notes = tokenizer_for(
            config.data, lambda: iter(training.texts), bytes_of(training.texts), tokenizer
        )
        (rows, cut), (held_back, _) = (
            encode_pairs(
                part.pairs,
                label_ids(part.table, self.names).tolist(),
                tokenizer,
                config.model.length,
            )
            for part in (training, validation)
        )
        head = config.model.head
        assert isinstance(head, PairClassifier)
        head = replace(head, classes=len(self.names), names=self.names)
        self.start(config, tokenizer, head, rows, held_back)
        if any(cut):
            notes = (*notes, f"{sum(cut):,} of {len(cut):,} pairs are longer than "
                     f"{config.model.length} tokens and were cut")  # fmt: skip
        self.notes = notes

    def evaluate(self, model: Transformer) -> Measured:
        guesses = predict(model, self.validation, self.config, self.evaluation_batch)
        found = report(guesses, _targets(self.validation), self.names)
        return Measured(found.metrics, found.right, f"{len(self.validation):,} pairs")

    def chance(self) -> float:
        return math.log(len(self.names))


class SentencePairTask(ExampleTask):
    """Predict the label of two texts."""

    metric: ClassVar[str] = "accuracy"
    larger_is_better: ClassVar[bool] = True
    counted: ClassVar[str] = "pairs"
    padded: ClassVar[bool] = True
    evaluation_rows: ClassVar[int | None] = 32
    loaded: ClassVar[type[LoadedTask] | None] = LabelledPairs

    def example_targets(self, ids: Tensor) -> Tensor:
        return ids[:, 0]

    def training_material(self, config: RunConfig, folders: data.DataFolders) -> Material:
        return tuple(_parts(config)[0].texts)

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        config, options = request.config, request.options
        names = class_names(config)
        if options.own_part is not None:
            found = _parts(config)[options.own_part]
        else:
            own = config.data
            columns = (
                options.text or own.text_column,
                options.second or own.second_column,
                options.label or own.label_column,
            )
            found = read_text_pairs(options.data or own.source, *columns)
        left_out = 0
        if options.unknown_label == "skip":
            known = [row for row, label in enumerate(found.labels) if label in names]
            left_out = len(found) - len(known)
            found = found.select(known)
        notes = (f"{left_out:,} rows with unknown labels are left out",) if left_out else ()
        labels = label_ids(found.table, names).tolist()
        encoded = encode_pairs(found.pairs, labels, request.tokenizer, config.model.length)
        return EvaluationData(request, found.name, found.texts, (*encoded, left_out, found), notes)

    def measure(self, model: Transformer, prepared: EvaluationData) -> ClassReport:
        request = prepared.request
        rows, cut, left_out, pairs = prepared.content
        names = class_names(request.config)
        found = report(predict(model, rows, request.config), _targets(rows), names)
        protocol = f"{len(rows):,} pairs; {request.options.describe(prepared.name)}"
        return replace(
            found,
            left_out=left_out,
            cut=sum(cut),
            protocol=protocol,
            table=pairs.table,
            precision=request.options.precision,
            recall=request.options.recall,
        )


def _targets(examples: Examples) -> Tensor:
    return torch.tensor([int(row.target) for row in examples.rows])


def _parts(config: RunConfig) -> tuple[Any, Any]:
    """Training and validation pairs."""

    def read(path: str) -> TextPairs:
        columns: DataConfig = config.data
        return read_text_pairs(
            path, columns.text_column, columns.second_column, columns.label_column
        )

    return split(config, read)
