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
from clearformer.escape import escape_line
from clearformer.inference.modes import inference_mode
from clearformer.tasks import sources
from clearformer.tasks.measured import Measured, standard_error
from clearformer.tasks.task import (
    EvaluationData,
    EvaluationOptions,
    EvaluationRequest,
    LoadedTask,
    Material,
    PairLengths,
    Report,
    Task,
    rows_at_a_time,
)
from clearformer.text import Tokenizer

SAMPLED = 500  # texts from which the mean length is estimated


# --- verbs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Classification:
    """A text with its most likely class and the probability of each class."""

    text: str
    label: str
    probabilities: dict[str, float]
    cut: bool  # whether the text was longer than the model's context and was truncated

    def row(self) -> dict[str, object]:
        """A row of a table, with probabilities rounded to six digits."""
        rounded = {name: round(share, 6) for name, share in self.probabilities.items()}
        return {"text": self.text, "label": self.label, "probabilities": rounded}


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

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
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
            advice = ": a longer --length would show more of them" if every else ""
            notes.append(
                f"{which} {len(rows):,} texts are longer than {model.length} tokens and were cut "
                f"(kept: {config.data.truncate_to}){advice}"
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
        return Measured(measured.metrics, measured.right, _protocol(self.validation, self.config))

    def chance(self) -> float:
        return math.log(len(self.names))


class ClassificationTask(Task):
    """Predict the label of a text."""

    metric: ClassVar[str] = "accuracy"
    larger_is_better: ClassVar[bool] = True
    counted: ClassVar[str] = "texts"
    padded: ClassVar[bool] = True
    evaluation_rows: ClassVar[int | None] = 32
    loaded: ClassVar[type[LoadedTask] | None] = Labels

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
        return EvaluationData(request, table.name, table.texts, (rows, left_out), tuple(notes))

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
        rows, left_out = prepared.content
        report = class_report(predict(model, rows, config), rows)
        protocol = _protocol(rows, config)
        cut = data.count_truncated(rows, config.model.length)
        return replace(
            report,
            left_out=left_out,
            cut=cut,
            protocol=f"{protocol}; {options.describe(prepared.name)}",
        )


def _protocol(rows: data.Rows, config: RunConfig) -> str:
    """The number of texts, and how many of them were truncated."""
    length = config.model.length
    truncated = data.count_truncated(rows, length)
    cut = f"; {truncated:,} longer than {length} tokens and cut (kept: {config.data.truncate_to})"
    return f"{len(rows):,} texts{cut if truncated else ''}"


# --- the report ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassReport(Report):
    """A classifier on labelled rows."""

    names: tuple[str, ...]
    confusion: Tensor  # (classes, classes): a row for each true class, a column for each guess
    loss: float
    calibration: float  # mean gap of confidence and accuracy
    right: Sequence[float] = ()  # 1 for each text with the right label, 0 for the others
    total: int = 0
    cut: int = 0
    left_out: int = 0  # rows with unknown labels
    protocol: str = ""

    @property
    def accuracy(self) -> float:
        return float(self.confusion.diagonal().sum() / self.confusion.sum())

    @property
    def metrics(self) -> dict[str, float]:
        return {"loss": self.loss, "accuracy": self.accuracy}

    def by_class(self) -> list[tuple[str, int, float, float, float]]:
        """Name, rows, precision, recall and F1 of each class."""
        right = self.confusion.diagonal().double()
        precision = right / self.confusion.sum(0).clamp(min=1)
        recall = right / self.confusion.sum(1).clamp(min=1)
        f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-12)
        rows = self.confusion.sum(1)
        return [
            (name, int(rows[i]), float(precision[i]), float(recall[i]), float(f1[i]))
            for i, name in enumerate(self.names)
        ]

    def lines(self, in_float32: ClassReport | None = None) -> list[str]:
        lines = []
        if in_float32 is not None:
            lines.append(f"in float32   {in_float32.accuracy:.4f}, loss {in_float32.loss:.4f}")
        error = standard_error(self.right)
        sure = "" if error is None else f", standard error {error:.4f}"
        lines.append(f"accuracy     {self.accuracy:.4f} on {self.total:,} texts{sure}")
        if self.left_out:
            share = self.accuracy * self.total / (self.total + self.left_out)
            lines.append(
                f"             {share:.4f} with the {self.left_out:,} left out counted as wrong"
            )
        return [
            *lines,
            f"loss         {self.loss:.4f}",
            f"calibration  {self.calibration:.4f} (mean gap of confidence and accuracy)",
            f"protocol: {self.protocol}",
            *self._tables(),
        ]

    def _tables(self) -> list[str]:
        """Precision, recall and F1 of each class, and the confusion matrix."""
        shown = [escape_line(name) for name in self.names]
        width = max(len(name) for name in (*shown, "class"))
        lines = ["", f"{'class':{width}}   texts  precision  recall      F1"]
        for name, (_, count, precision, recall, f1) in zip(shown, self.by_class(), strict=True):
            # Recall and F1 of a class without texts are undefined, not zero.
            rest = f"{recall:.4f}  {f1:.4f}" if count else "     -       -"
            lines.append(f"{name:{width}} {count:7,}     {precision:.4f}  {rest}")
        cell = max(width, 7)
        lines += ["", "confusion: a row for each true class, a column for each guess"]
        lines.append(" " * width + "".join(f" {name:>{cell}}" for name in shown))
        for name, row in zip(shown, self.confusion.tolist(), strict=True):
            lines.append(f"{name:{width}}" + "".join(f" {count:>{cell},}" for count in row))
        return lines


def class_report(probabilities: Tensor, rows: data.Rows) -> ClassReport:
    """Compare guesses (rows, classes) with the labels of the rows."""
    return report(probabilities, torch.from_numpy(rows.labels), rows.names)


def report(probabilities: Tensor, labels: Tensor, names: tuple[str, ...]) -> ClassReport:
    """Compare guesses (rows, classes) with labels (rows,)."""
    classes = len(names)
    confidence, guess = probabilities.max(dim=1)
    confusion = torch.zeros(classes, classes, dtype=torch.long)
    confusion.index_put_((labels, guess), torch.ones_like(labels), accumulate=True)
    true_class = probabilities.gather(1, labels[:, None])[:, 0]
    return ClassReport(
        names,
        confusion,
        float(-true_class.clamp(min=1e-12).log().mean()),
        _calibration_error(confidence, guess == labels),
        (guess == labels).float().tolist(),
        len(labels),
    )


def _calibration_error(confidence: Tensor, right: Tensor, bins: int = 10) -> float:
    """Expected calibration error: mean gap of confidence and accuracy over bins of confidence."""
    bin_of = (confidence * bins).long().clamp(max=bins - 1)
    total = 0.0
    for index in range(bins):
        inside = bin_of == index
        if inside.any():
            gap = (confidence[inside].mean() - right[inside].float().mean()).abs()
            total += float(gap * inside.float().mean())
    return total
