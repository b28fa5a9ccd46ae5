"""Base of the objectives that predict something of a whole text: its class, labels or a number.

What is predicted is a `Target`; reading, batches and evaluation are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearformer import data
from clearformer.config import RunConfig
from clearformer.core.model import Batch, Transformer
from clearformer.inference.modes import inference_mode
from clearformer.tasks import sources
from clearformer.tasks.measured import Measured
from clearformer.tasks.target import Target
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
from clearformer.tasks.text_report import TextReport
from clearformer.text import Tokenizer

SAMPLED = 500  # texts from which the mean length is estimated


def text_outputs(
    model: Transformer, rows: data.Rows, config: RunConfig, target: Target, batch_size: int = 32
) -> Tensor:
    """What a model says about each row, in the rows' order: (rows, C)."""
    found: dict[int, Tensor] = {}
    with inference_mode(model) as device:
        for batch in data.evaluation_rows(
            rows, batch_size, config.model.length, config.data.truncate_to
        ):
            logits = model(
                torch.from_numpy(batch.tokens).to(device),
                torch.from_numpy(batch.attention_mask).to(device),
            )
            outputs = target.outputs(logits.float()).cpu()  # (B, C)
            found.update(zip(batch.ids.tolist(), outputs, strict=True))
    return torch.stack([found[row] for row in range(len(rows))])


def describe_texts(
    model: Transformer,
    config: RunConfig,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[int]],
    target: Target,
    name: object = None,
) -> list[Any]:
    """The target's result for each text, a string or token ids; `name` is the model's in errors."""
    names = target.names(config, name)
    if not texts:
        return []
    rows = data.encode_texts(texts, tokenizer, names)
    capacity = config.model.length - len(rows.prefix_ids) - len(rows.suffix_ids)
    cut = (rows.lengths > capacity).tolist()
    outputs = text_outputs(model, rows, config, target).tolist()
    shown = [each if isinstance(each, str) else tokenizer.decode(list(each)) for each in texts]
    return [
        target.result((text,), row, config, truncated)
        for text, row, truncated in zip(shown, outputs, cut, strict=True)
    ]


class LoadedTexts(LoadedTask):
    """A table of texts with what is to be predicted of them."""

    target: ClassVar[Target]
    report: TextReport | None = None  # of the last evaluation

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        self.folders, target = folders, self.target
        training, validation = self._tables(config)
        self.tokenizer, tokenizer_notes = sources.tokenizer_for(
            config.data, lambda: iter(training.texts), sources.bytes_of(training.texts), tokenizer
        )
        head = target.complete(config.model.head, training)
        self.config = replace(
            config, model=replace(config.model, vocabulary=self.tokenizer.size, head=head)
        )
        self.names = target.names(self.config)
        rows, self.validation = (
            data.encode_rows(table, self.tokenizer, self.names, target.encode(table, head))
            for table in (training, validation)
        )
        length = config.model.length
        self.batches = data.RowBatches(
            rows, config.train.batch_size, config.train.seed, length, config.data.truncate_to
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{rows.sha256()} {self.validation.sha256()}"
        notes = [*training.notes, *validation.notes, *tokenizer_notes]
        if self.batches.cut_rows:
            every = self.batches.cut_rows == len(rows)
            which = "all" if every else f"{self.batches.cut_rows:,} of"
            share = data.truncated_share(rows, length)
            notes.append(
                f"{which} {len(rows):,} texts are longer than {length} tokens and were cut "
                f"(kept: {config.data.truncate_to}), which loses {share:.0%} of all tokens; a "
                f"longer --length shows more of them"
            )
        repeated = data.repeated_rows(training, validation)
        if repeated:
            notes.append(
                f"{repeated:,} of {len(validation):,} validation texts are also training texts"
            )
        self.notes = tuple(notes)

    def _tables(self, config: RunConfig) -> tuple[data.Table, data.Table]:
        return sources.tables(config.data, self.folders, config.train.seed, self.target.form)

    def batch(self, step: int) -> Batch:
        return tensors(self.batches.batch(step))

    def evaluate(self, model: Transformer) -> Measured:
        rows = rows_at_a_time(self.config, 32)
        outputs = text_outputs(model, self.validation, self.config, self.target, rows)
        targets = torch.from_numpy(self.validation.labels)
        self.report = self.target.report(outputs, targets, self.config.model.head)
        protocol = _protocol(self.validation, self.config)
        return Measured(self.report.metrics, self.report.scores(self.metric), protocol)

    def chance(self) -> float:
        return self.target.chance(self.config.model.head)

    def prepare(self, model: Any) -> None:
        self.target.prepare(model.head, self.batches.rows.labels, self.config)
        ngrams = self.config.model.ngrams
        if ngrams is not None and not model.ngrams.evidence.any():  # else it was loaded
            model.ngrams.count(self._training_texts(), ngrams.evidence.of)

    def _training_texts(self) -> Iterator[Batch]:
        """Every training text once."""
        model, cut = self.config.model, self.config.data.truncate_to
        for batch in data.evaluation_rows(self.batches.rows, 64, model.length, cut):
            yield tensors(batch)

    def remarks(self) -> list[str]:
        return [] if self.report is None else self.report.remarks()

    def baseline(self) -> str | None:
        found = self.target.baseline(*self._tables(self.config))
        return None if found is None else str(found)


class TextTask(Task):
    """Base of the tasks: predict something of a text."""

    target: ClassVar[Any]
    counted: ClassVar[str] = "texts"
    padded: ClassVar[bool] = True
    evaluation_rows: ClassVar[int | None] = 32
    training_share: ClassVar[bool] = True

    def training_material(self, config: RunConfig, folders: data.DataFolders) -> Material:
        return sources.tables(config.data, folders, config.train.seed, self.target.form)[0].texts

    def example(self, config: RunConfig, rows: int, pair_lengths: PairLengths) -> tuple[Any, Any]:
        ids = torch.zeros(rows, config.model.length, dtype=torch.long)
        segments = ids if config.model.segments else None
        return Batch(ids, self.example_targets(rows, config), ids == 0, segments), None

    def example_targets(self, rows: int, config: RunConfig) -> Tensor:
        """Targets of so many rows."""
        return torch.zeros(rows)

    def typical_length(self, config: RunConfig, folders: data.DataFolders) -> int:
        """Mean length of padded rows, estimated from a sample with a tokenizer trained on it."""
        known = self.training_material(config, folders)
        assert isinstance(known, tuple)
        texts = known[:: max(1, len(known) // SAMPLED)]
        size = sources.bytes_of(texts)
        tokenizer, _ = sources.tokenizer_for(config.data, lambda: iter(texts), size)
        limit = config.model.length
        lengths = [min(len(ids), limit) for ids in tokenizer.encode_many(texts)]
        return max(1, round(sum(data.batch_width(each, limit) for each in lengths) / len(lengths)))

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        return self.prepare_table(request, self._table(request))

    def prepare_table(self, request: EvaluationRequest, table: data.Table) -> EvaluationData:
        """Encode the texts of a table, with its labels in the spelling of the model's."""
        config, target, head = request.config, self.target, request.config.model.head
        names, notes = target.names(config), list(table.notes)
        table, left_out = known_part(table, request, target)
        if left_out:
            notes.append(f"{left_out:,} rows with unknown labels are left out")
        rows = data.encode_rows(table, request.tokenizer, names, target.encode(table, head))
        content = (rows, left_out, table)
        return EvaluationData(request, table.name, table.texts, content, tuple(notes))

    def prepare_same(self, request: EvaluationRequest, prepared: EvaluationData) -> EvaluationData:
        _, _, table = prepared.content
        return self.prepare_table(request, replace(table, notes=()))

    def _table(self, request: EvaluationRequest) -> data.Table:
        config, options, folders = request.config, request.options, request.folders
        form = self.target.form
        if options.own_part is not None:
            parts = sources.tables(config.data, folders, config.train.seed, form)
            return parts[options.own_part]
        source = options.data or config.data.source
        corpus = data.CORPORA.get(source)
        if corpus is None:
            columns = (
                options.text or config.data.text_column,
                options.label or config.data.label_column,
            )
            return data.read_table(source, *columns, table_format(config, options), form=form)
        sources.require_form(source, form)
        if not isinstance(corpus, data.LabelledCorpus):
            raise ValueError(f"{source} has no labels, but {self.model.name} is {self.model.noun}")
        return corpus.read(options.part, folders)

    def measure(self, model: Transformer, prepared: EvaluationData) -> TextReport:
        config = prepared.request.config
        rows, left_out, table = prepared.content
        outputs = text_outputs(model, rows, config, self.target)
        report = self.target.report(outputs, torch.from_numpy(rows.labels), config.model.head)
        cut = data.count_truncated(rows, config.model.length)
        protocol = _protocol(rows, config)
        return completed(report, prepared, protocol, table=table, left_out=left_out, cut=cut)


def tensors(batch: data.RowBatch) -> Batch:
    """Padded rows as tensors."""
    return Batch(
        torch.from_numpy(batch.tokens),
        torch.from_numpy(batch.labels),
        torch.from_numpy(batch.attention_mask),
    )


def known_part(
    table: data.Table, request: EvaluationRequest, target: Target
) -> tuple[data.Table, int]:
    """The rows whose labels the model has, if the others are skipped, and how many are not."""
    config, head = request.config, request.config.model.head
    if config.data.table.normalize_labels:
        table = table.with_labels_of(target.names(config), target.form)
    if request.options.unknown_label != "skip" or table.labels is None:
        return table, 0
    known = target.known_rows(table, head)
    return table.select(known), len(table) - len(known)


def table_format(config: RunConfig, options: EvaluationOptions) -> Any:
    """How a table of other data is read: labels are separated as in training."""
    separator = options.table.label_separator or config.data.table.label_separator
    return replace(options.table, label_separator=separator)


def completed(
    report: TextReport, prepared: EvaluationData, protocol: str, **more: Any
) -> TextReport:
    """A report with the protocol, the goal of the thresholds and how its table is read."""
    config, options = prepared.request.config, prepared.request.options
    return replace(
        report,
        protocol=f"{protocol}; {options.describe(prepared.name)}",
        format=options.table if options.own_part is None else config.data.table,
        precision=options.precision,
        recall=options.recall,
        **more,
    )


def _protocol(rows: data.Rows, config: RunConfig) -> str:
    """The number of texts, and how many of them were truncated."""
    length = config.model.length
    truncated = data.count_truncated(rows, length)
    cut = f"; {truncated:,} longer than {length} tokens and cut (kept: {config.data.truncate_to})"
    return f"{len(rows):,} texts{cut if truncated else ''}"
