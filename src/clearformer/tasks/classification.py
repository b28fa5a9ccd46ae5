"""Classification: a model learns the label of a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearformer import data
from clearformer.config import Classifier, RunConfig
from clearformer.core.model import Batch, Transformer
from clearformer.inference.modes import inference_mode
from clearformer.tasks import sources
from clearformer.tasks.baseline import baseline
from clearformer.tasks.class_report import ClassReport, class_report
from clearformer.tasks.measured import Measured, standard_error
from clearformer.tasks.predictions import Prediction
from clearformer.tasks.task import (
    EvaluationData,
    EvaluationOptions,
    EvaluationRequest,
    LoadedTask,
    Material,
    PairLengths,
    Task,
    rows_at_a_time,
)
from clearformer.text import Tokenizer
from clearformer.training.class_weights import balanced, weight_classes

SAMPLED = 500  # texts from which the mean length is estimated
UNSURE = 0.02  # standard error of an accuracy that tells little


# --- verbs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Classification:
    """A text with its most likely class and the probability of each class."""

    text: str
    label: str
    probabilities: dict[str, float]
    cut: bool  # whether the text was longer than the model's context and was truncated

    @property
    def probability(self) -> float:
        """Of the most likely class."""
        return self.probabilities[self.label]

    @property
    def texts(self) -> dict[str, str]:
        """What was classified, by column."""
        return {"text": self.text}

    @property
    def prediction(self) -> Prediction:
        """As a row of a table needs it."""
        return Prediction(self.probabilities)


def classify(
    model: Transformer,
    config: RunConfig,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[int]],
    name: object = None,
) -> list[Classification]:
    """The class of each text, a string or token ids; `name` is the model's in error messages."""
    names = class_names(config, name)
    if not texts:
        return []
    rows = data.encode_texts(texts, tokenizer, names)
    capacity = config.model.length - len(rows.prefix_ids) - len(rows.suffix_ids)
    cut = (rows.lengths > capacity).tolist()
    probabilities = predict(model, rows, config).tolist()
    return [
        Classification(
            text if isinstance(text, str) else tokenizer.decode(list(text)),
            names[row.index(max(row))],
            dict(zip(names, row, strict=True)),
            truncated,
        )
        for text, row, truncated in zip(texts, probabilities, cut, strict=True)
    ]


def class_names(config: RunConfig, name: object = None) -> tuple[str, ...]:
    """The names of a classifier's classes; ValueError for any other model."""
    config.model.require_verb("classify", name)
    names = config.model.head.names
    if names is None:
        raise ValueError(
            f"{name or config.model.name} has no names for its classes: train it first"
        )
    return names


def predict(model: Transformer, rows: data.Rows, config: RunConfig, batch_size: int = 32) -> Tensor:
    """Probabilities of each class for each row, in the rows' order: (rows, classes)."""
    probabilities = torch.zeros(len(rows), len(rows.names))
    with inference_mode(model) as device:
        for batch in data.evaluation_rows(
            rows, batch_size, config.model.length, config.data.truncate_to
        ):
            logits = model(
                torch.from_numpy(batch.tokens).to(device),
                torch.from_numpy(batch.attention_mask).to(device),
            )
            probabilities[torch.from_numpy(batch.ids)] = logits.float().softmax(dim=-1).cpu()
    return probabilities


# --- the objective -------------------------------------------------------------------------


class Labels(LoadedTask):
    """A table of texts with their labels."""

    report: ClassReport | None = None  # of the last evaluation

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        self.folders = folders
        training, validation = sources.tables(config.data, folders, config.train.seed)
        self.names = data.label_names(training)
        self.tokenizer, tokenizer_notes = sources.tokenizer_for(
            config.data, lambda: iter(training.texts), sources.bytes_of(training.texts), tokenizer
        )
        rows = data.encode_rows(training, self.tokenizer, self.names)
        self.validation = data.encode_rows(validation, self.tokenizer, self.names)
        head = config.model.head
        assert isinstance(head, Classifier)
        model = replace(
            config.model,
            vocabulary=self.tokenizer.size,
            head=replace(head, classes=len(self.names), names=self.names),
        )
        self.config = replace(config, model=model)
        self.batches = data.RowBatches(
            rows, config.train.batch_size, config.train.seed, model.length, config.data.truncate_to
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{rows.sha256()} {self.validation.sha256()}"
        notes = [*training.notes, *validation.notes, *tokenizer_notes]
        if self.batches.cut_rows:
            every = self.batches.cut_rows == len(rows)
            which = "all" if every else f"{self.batches.cut_rows:,} of"
            share = data.truncated_share(rows, model.length)
            notes.append(
                f"{which} {len(rows):,} texts are longer than {model.length} tokens and were cut "
                f"(kept: {config.data.truncate_to}), which loses {share:.0%} of all tokens; a "
                f"longer --length shows more of them"
            )
        repeated = data.repeated_rows(training, validation)
        if repeated:
            notes.append(
                f"{repeated:,} of {len(validation):,} validation texts are also training texts"
            )
        self.notes = tuple(notes)

    def batch(self, step: int) -> Batch:
        batch = self.batches.batch(step)
        return Batch(
            torch.from_numpy(batch.tokens),
            torch.from_numpy(batch.labels),
            torch.from_numpy(batch.attention_mask),
        )

    def evaluate(self, model: Transformer) -> Measured:
        rows = rows_at_a_time(self.config, 32)
        measured = class_report(
            predict(model, self.validation, self.config, batch_size=rows), self.validation
        )
        self.report = measured
        scores = measured.scores(self.metric)
        return Measured(measured.metrics, scores, _protocol(self.validation, self.config))

    def chance(self) -> float:
        return math.log(len(self.names))

    def prepare(self, model: Any) -> None:
        """Weight the classes in the loss, if the settings say so."""
        if self.config.train.class_weights == "balanced":
            weight_classes(model.head, balanced(self.batches.rows.labels, len(self.names)))

    def remarks(self) -> list[str]:
        if self.report is None:
            return []
        found = []
        if missing := self.report.never_predicted:
            names = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
            found.append(
                f"{names} {'are' if len(missing) > 1 else 'is'} never predicted on the validation "
                f"texts: give more rows of it, or --class-weights balanced"
            )
        error = standard_error(self.report.right)
        if error is not None and error > UNSURE:
            found.append(
                f"the {self.report.total:,} validation texts are few: the accuracy is known to "
                f"about ± {2 * error:.2f}; --validation-fraction holds more back"
            )
        return found

    def baseline(self) -> str | None:
        config = self.config
        training, validation = sources.tables(config.data, self.folders, config.train.seed)
        found = baseline(training, validation)
        return None if found is None else str(found)


class ClassificationTask(Task):
    """Predict the label of a text."""

    metric: ClassVar[str] = "accuracy"
    larger_is_better: ClassVar[bool] = True
    counted: ClassVar[str] = "texts"
    padded: ClassVar[bool] = True
    evaluation_rows: ClassVar[int | None] = 32
    loaded: ClassVar[type[LoadedTask] | None] = Labels
    class_weights: ClassVar[bool] = True
    training_share: ClassVar[bool] = True
    metrics: ClassVar[dict[str, bool]] = {"accuracy": True, "macro_f1": True, "loss": False}

    def training_material(self, config: RunConfig, folders: data.DataFolders) -> Material:
        return sources.tables(config.data, folders, config.train.seed)[0].texts

    def example(self, config: RunConfig, rows: int, pair_lengths: PairLengths) -> tuple[Any, Any]:
        ids = torch.zeros(rows, config.model.length, dtype=torch.long)
        return Batch(ids, ids[:, 0], ids == 0, ids if config.model.segments else None), None

    def typical_length(self, config: RunConfig, folders: data.DataFolders) -> int:
        """Mean length of padded rows, estimated from a sample with a tokenizer trained on it."""
        training, _ = sources.tables(config.data, folders, config.train.seed)
        texts = training.texts[:: max(1, len(training.texts) // SAMPLED)]
        size = sources.bytes_of(texts)
        tokenizer, _ = sources.tokenizer_for(config.data, lambda: iter(texts), size)
        limit = config.model.length
        lengths = [min(len(ids), limit) for ids in tokenizer.encode_many(texts)]
        return max(1, round(sum(data.batch_width(each, limit) for each in lengths) / len(lengths)))

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        config, options = request.config, request.options
        names, table = class_names(config), self._table(config, options, request.folders)
        left_out, notes = 0, list(table.notes)
        if config.data.table.normalize_labels:
            table = table.with_labels_of(names)
        if options.unknown_label == "skip" and table.labels is not None:
            known = [row for row, label in enumerate(table.labels) if label in names]
            left_out = len(table) - len(known)
            table = table.select(known)
            if left_out:
                notes.append(f"{left_out:,} rows with unknown labels are left out")
        rows = data.encode_rows(table, request.tokenizer, names)
        content = (rows, left_out, table)
        return EvaluationData(request, table.name, table.texts, content, tuple(notes))

    def _table(
        self, config: RunConfig, options: EvaluationOptions, folders: data.DataFolders
    ) -> data.Table:
        if options.own_part is not None:
            return sources.tables(config.data, folders, config.train.seed)[options.own_part]
        source = options.data or config.data.source
        corpus = data.CORPORA.get(source)
        if corpus is None:
            columns = (
                options.text or config.data.text_column,
                options.label or config.data.label_column,
            )
            return data.read_table(source, *columns, options.table)
        if not isinstance(corpus, data.LabelledCorpus):
            raise ValueError(f"{source} has no labels, but {self.model.name} is {self.model.noun}")
        return corpus.read(options.part, folders)

    def measure(self, model: Transformer, prepared: EvaluationData) -> ClassReport:
        config, options = prepared.request.config, prepared.request.options
        rows, left_out, table = prepared.content
        report = class_report(predict(model, rows, config), rows)
        protocol = _protocol(rows, config)
        cut = data.count_truncated(rows, config.model.length)
        return replace(
            report,
            left_out=left_out,
            cut=cut,
            protocol=f"{protocol}; {options.describe(prepared.name)}",
            table=table,
            format=options.table if options.own_part is None else config.data.table,
            precision=options.precision,
            recall=options.recall,
        )


def _protocol(rows: data.Rows, config: RunConfig) -> str:
    """The number of texts, and how many of them were truncated."""
    length = config.model.length
    truncated = data.count_truncated(rows, length)
    cut = f"; {truncated:,} longer than {length} tokens and cut (kept: {config.data.truncate_to})"
    return f"{len(rows):,} texts{cut if truncated else ''}"
