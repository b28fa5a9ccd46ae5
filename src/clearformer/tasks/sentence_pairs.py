"""Classification of sentence pairs: a model learns the label of two texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clearformer import data
from clearformer.config import RunConfig
from clearformer.core.model import Transformer
from clearformer.data.examples import Example, Examples, cut_pair, pair_layout, stacked
from clearformer.data.rows import IGNORE
from clearformer.table_options import EARLIER, LabelledFormat, TableFormat
from clearformer.tasks.class_report import ClassReport
from clearformer.tasks.classification import CLASSES, Classification, ClassificationTask
from clearformer.tasks.examples import ExampleTask, LoadedExamples, row_logits, split
from clearformer.tasks.labelled_texts import completed, known_part
from clearformer.tasks.measured import Measured
from clearformer.tasks.sources import bytes_of, tokenizer_for
from clearformer.tasks.task import EvaluationData, EvaluationRequest, LoadedTask, Material
from clearformer.tasks.text_report import TextReport
from clearformer.text import Tokenizer

FORMAT = fields(TableFormat)  # how the bytes of a table become rows
Pair = tuple[str, str]


@dataclass(frozen=True)
class TextPairs:
    """Pairs of texts with labels; `table` has both texts of a pair on two lines."""

    pairs: tuple[Pair, ...]
    table: data.Table

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def texts(self) -> tuple[str, ...]:
        return self.table.texts

    def select(self, rows: Sequence[int]) -> TextPairs:
        """Only these pairs, in this order."""
        return TextPairs(tuple(self.pairs[row] for row in rows), self.table.select(rows))


def read_text_pairs(
    path: str, text: str, second: str, label: str, options: LabelledFormat = EARLIER
) -> TextPairs:
    """The pairs of a table, by the names of its columns."""
    table = data.read_table(path, text, label, options, second=second)
    format = replace(EARLIER, **{each.name: getattr(options, each.name) for each in FORMAT})
    firsts = data.read_table(path, text, None, format).texts
    others = data.read_table(path, second, None, format, ("--second-column", "")).texts
    assert table.rows is not None
    return TextPairs(tuple((firsts[row], others[row]) for row in table.rows), table)


# --- the verb ------------------------------------------------------------------------------


def classify_pairs(
    model: Transformer,
    config: RunConfig,
    tokenizer: Tokenizer,
    pairs: Sequence[Pair],
    name: object = None,
) -> list[Classification]:
    """The class of each pair of texts; `name` is the model's in error messages."""
    CLASSES.names(config, name)
    if not pairs:
        return []
    examples, cut = encode_pairs(pairs, [IGNORE] * len(pairs), tokenizer, config.model.length)
    outputs = predict(model, examples, config).tolist()
    return [
        CLASSES.result(pair, row, config, was_cut)
        for pair, row, was_cut in zip(pairs, outputs, cut, strict=True)
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
    return CLASSES.outputs(torch.stack(row_logits(model, examples, config, batch_size)))


# --- the objective -------------------------------------------------------------------------


class LabelledPairs(LoadedExamples):
    """A table of pairs with their labels."""

    report: ClassReport | None = None  # of the last evaluation

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        training, validation = _parts(config)
        head = CLASSES.complete(config.model.head, training.table)
        tokenizer, notes = tokenizer_for(
            config.data, lambda: iter(training.texts), bytes_of(training.texts), tokenizer
        )
        (rows, cut), (held_back, _) = (
            encode_pairs(
                part.pairs,
                CLASSES.encode(part.table, head).tolist(),
                tokenizer,
                config.model.length,
            )
            for part in (training, validation)
        )
        self.start(config, tokenizer, head, rows, held_back)
        notes = (*training.table.notes, *notes)
        if any(cut):
            notes = (*notes, f"{sum(cut):,} of {len(cut):,} pairs are longer than "
                     f"{config.model.length} tokens and were cut")  # fmt: skip
        self.notes = notes

    def evaluate(self, model: Transformer) -> Measured:
        guesses = predict(model, self.validation, self.config, self.evaluation_batch)
        self.report = CLASSES.report(guesses, _targets(self.validation), self.config.model.head)
        scores = self.report.scores(self.metric)
        return Measured(self.report.metrics, scores, f"{len(self.validation):,} pairs")

    def chance(self) -> float:
        return CLASSES.chance(self.config.model.head)

    def prepare(self, model: Any) -> None:
        labels = _targets(self.batches.examples).numpy()
        CLASSES.prepare(model.head, labels, self.config)

    def remarks(self) -> list[str]:
        return [] if self.report is None else self.report.remarks()

    def baseline(self) -> str | None:
        training, validation = _parts(self.config)
        found = CLASSES.baseline(training.table, validation.table)
        return None if found is None else str(found)


class SentencePairTask(ExampleTask):
    """Predict the label of two texts."""

    target: ClassVar[Any] = CLASSES
    metric: ClassVar[str] = "accuracy"
    larger_is_better: ClassVar[bool] = True
    metrics: ClassVar[dict[str, bool]] = ClassificationTask.metrics
    class_weights: ClassVar[bool] = True
    training_share: ClassVar[bool] = True
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
        if options.own_part is not None:
            return self._prepared(request, _parts(config)[options.own_part])
        own = config.data
        columns = (
            options.text or own.text_column,
            options.second or own.second_column,
            options.label or own.label_column,
        )
        source = options.data or own.source
        return self._prepared(request, read_text_pairs(source, *columns, options.table))

    def prepare_same(self, request: EvaluationRequest, prepared: EvaluationData) -> EvaluationData:
        _, _, _, pairs = prepared.content
        return self._prepared(request, pairs)

    def _prepared(self, request: EvaluationRequest, found: TextPairs) -> EvaluationData:
        config, head = request.config, request.config.model.head
        notes, whole = list(found.table.notes), found.table
        table, left_out = known_part(
            replace(whole, rows=tuple(range(len(whole)))), request, CLASSES
        )
        if left_out:
            notes.append(f"{left_out:,} rows with unknown labels are left out")
        assert table.rows is not None
        found = TextPairs(
            tuple(found.pairs[row] for row in table.rows),
            replace(whole.select(table.rows), labels=table.labels),
        )
        labels = CLASSES.encode(found.table, head).tolist()
        encoded = encode_pairs(found.pairs, labels, request.tokenizer, config.model.length)
        content = (*encoded, left_out, found)
        return EvaluationData(request, found.name, found.texts, content, tuple(notes))

    def measure(self, model: Transformer, prepared: EvaluationData) -> TextReport:
        config = prepared.request.config
        rows, cut, left_out, pairs = prepared.content
        found = CLASSES.report(predict(model, rows, config), _targets(rows), config.model.head)
        more = {"table": pairs.table, "left_out": left_out, "cut": sum(cut)}
        return completed(found, prepared, f"{len(rows):,} pairs", **more)


def _targets(examples: Examples) -> Tensor:
    return torch.tensor([int(row.target) for row in examples.rows])


def _parts(config: RunConfig) -> tuple[TextPairs, TextPairs]:
    """Training and validation pairs, the former with the notes on the whole table."""
    own, notes = config.data, list[str]()

    def read(path: str) -> TextPairs:
        columns = own.text_column, own.second_column, own.label_column
        found = read_text_pairs(path, *columns, own.table)
        notes.extend(found.table.notes)
        return found

    training, validation = split(config, read)
    if own.training_share < 1:
        table, seed = training.table, config.train.seed
        share = data.share_of_indices(table.texts, table.labels, own.training_share, seed)
        training = training.select(share)
    return replace(training, table=replace(training.table, notes=tuple(notes))), validation
