"""Masked language modelling: a model learns to predict masked tokens.

Documents are the rows of a table (of a labelled corpus, all parts but the test part) or the files
of a text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from clearformer import data
from clearformer.config import RunConfig
from clearformer.core import heads
from clearformer.core.heads import IGNORE
from clearformer.core.model import Batch, Transformer
from clearformer.extensions.heads import Pretraining
from clearformer.inference.modes import inference_mode
from clearformer.tasks import sources
from clearformer.tasks.documents import documents, open_documents
from clearformer.tasks.measured import Measured, shares
from clearformer.tasks.task import (
    EvaluationData,
    EvaluationRequest,
    LoadedTask,
    Material,
    PairLengths,
    Report,
    Task,
)
from clearformer.text import Tokenizer

MAX_VALIDATION_TOKENS = 2**16  # evaluated during training
EVALUATION_SEED = 0  # the same tokens are masked in every run and at every step
EVALUATION_BATCH = 16


class Masking(LoadedTask):
    """Documents with some of their tokens masked."""

    task: MaskedTokenTask

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        train = config.train
        training, validation = documents(config.data, folders, config.model.length, train.seed)
        self.tokenizer, notes = sources.tokenizer_for(
            config.data, training.chunks, training.size, tokenizer
        )
        self.config = replace(config, model=replace(config.model, vocabulary=self.tokenizer.size))
        encoded = data.encode_documents(training.name, training.documents(), self.tokenizer)
        held_back = data.encode_documents(validation.name, validation.documents(), self.tokenizer)
        self.batches = self.task.batches(
            self.config, encoded, self.tokenizer, train.batch_size, train.seed
        )
        self.validation = self.task.evaluation_batches(
            self.config, held_back, self.tokenizer, MAX_VALIDATION_TOKENS
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{encoded.sha256()} {held_back.sha256()}"
        scale = (
            f"predicting masked tokens by their frequency alone gives a masked loss of "
            f"{by_frequency(encoded, held_back, self.tokenizer.size):.2f}"
        )
        self.notes = (*notes, scale)

    def batch(self, step: int) -> Batch:
        return as_tensors(self.batches.batch(step))

    def evaluate(self, model: Transformer) -> Measured:
        report = measure(model, self.validation)
        return Measured(report.metrics, report.scores, report.described(self.config))

    def chance(self) -> float:
        return self.task.chance(self.tokenizer.size)


class MaskedTokenTask(Task):
    """Predict the masked tokens of a text."""

    metric: ClassVar[str] = "masked_loss"
    counted: ClassVar[str] = "hidden tokens"
    layout: ClassVar[type[data.SingleSpan] | type[data.SentencePairs]] = data.SingleSpan
    loaded: ClassVar[type[LoadedTask] | None] = Masking

    def training_material(self, config: RunConfig, folders: data.DataFolders) -> Material:
        length, seed = config.model.length, config.train.seed
        return documents(config.data, folders, length, seed)[0].material

    def example(self, config: RunConfig, rows: int, pair_lengths: PairLengths) -> tuple[Any, Any]:
        ids = torch.zeros(rows, config.model.length, dtype=torch.long)
        share = config.data.masking.rate if config.data.masking is not None else 1.0
        # Masked positions are spread evenly over the batch.
        masked_so_far = (torch.arange(ids.numel() + 1, dtype=torch.float64) * share).floor()
        masked = (masked_so_far.diff() > 0).view_as(ids)
        targets = ids.masked_fill(~masked, IGNORE)  # the loss is over masked tokens only
        return self.example_batch(ids, targets, ids if config.model.segments else None), None

    def example_batch(
        self, ids: torch.Tensor, targets: torch.Tensor, segments: torch.Tensor | None
    ) -> Batch:
        return Batch(ids, targets, ids == 0, segments)

    def chance(self, vocabulary: int) -> float:
        """The loss of a uniform prediction."""
        return math.log(vocabulary)

    def batches(
        self,
        config: RunConfig,
        documents: data.Documents,
        tokenizer: Tokenizer,
        batch: int,
        seed: int,
        max_rows: int | None = None,
    ) -> data.MaskedBatches:
        """Batches of the documents, masked by the settings of the config."""
        masking = config.data.masking
        if masking is None:
            raise ValueError(
                f"{config.model.name} learns from masked tokens, but data.masking is None: set it "
                f"to Masking()"
            )
        policy = data.MaskingPolicy(
            masking.rate, masking.mask_replace, masking.random_replace, data.UNITS[masking.unit]
        )
        return data.MaskedBatches(
            documents, tokenizer, config.model.length, batch, seed, self.layout(), policy, max_rows
        )

    def evaluation_batches(
        self, config: RunConfig, documents: data.Documents, tokenizer: Tokenizer, max_tokens: int
    ) -> data.MaskedBatches:
        """Batches with about `max_tokens` tokens, spread over the documents; one epoch is all."""
        max_rows = max(2, max_tokens // config.model.length)
        return self.batches(
            config, documents, tokenizer, EVALUATION_BATCH, EVALUATION_SEED, max_rows
        )

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        config, options, folders = request.config, request.options, request.folders
        if options.own_part is not None:
            both = documents(config.data, folders, config.model.length, config.train.seed)
            source = both[options.own_part]
        else:
            name, column = (
                options.data or config.data.source,
                options.text or config.data.text_column,
            )
            source = open_documents(name, options.part, column, folders)
        encoded = data.encode_documents(source.name, source.documents(), request.tokenizer)
        batches = self.evaluation_batches(config, encoded, request.tokenizer, options.max_bytes)
        return EvaluationData(request, source.name, source.material, batches)

    def measure(self, model: Transformer, prepared: EvaluationData) -> MaskedReport:
        report, request = measure(model, prepared.content), prepared.request
        protocol = f"{report.described(request.config)}; {request.options.describe(prepared.name)}"
        return replace(report, protocol=protocol)


def as_tensors(batch: data.MaskedBatch) -> Batch:
    arrays = batch.tokens, batch.targets, batch.attention_mask
    tokens, targets, attention_mask = map(torch.from_numpy, arrays)
    if batch.labels is None:
        return Batch(tokens, targets, attention_mask)
    labels, segments = torch.from_numpy(batch.labels), torch.from_numpy(batch.segments)
    return Batch(tokens, (targets, labels), attention_mask, segments)


def by_frequency(training: data.Documents, held_back: data.Documents, size: int) -> float:
    """The validation loss of predicting each token by its frequency in the training documents."""
    counts = np.bincount(training.flat, minlength=size) + 1.0  # one for tokens that do not occur
    return float(-np.log(counts / counts.sum())[held_back.flat].mean())


@dataclass(frozen=True)
class MaskedReport(Report):
    """Scores of a masked model: nats, correct predictions and their number."""

    masked: tuple[float, int, int]  # nats, correct and total masked tokens
    sentences: tuple[float, int, int]  # the same for sentence pairs; zeros without pairs
    rows: int
    parts: tuple[float, ...]  # nats of the masked tokens of each batch
    protocol: str = ""

    @property
    def scores(self) -> list[float]:
        """Losses of the parts, scaled so that their mean is the masked loss."""
        return shares(self.parts, max(self.masked[2], 1))

    def described(self, config: RunConfig) -> str:
        """How the metrics were measured."""
        masking = config.data.masking
        assert masking is not None
        return (
            f"{self.masked[2]:,} masked tokens in {self.rows:,} rows of up to "
            f"{config.model.length} tokens, masked as in training ({masking.rate:.0%}, by "
            f"{masking.unit}), the same at every evaluation"
        )

    @property
    def metrics(self) -> dict[str, float]:
        nats, right, count = self.masked
        masked_loss = nats / max(count, 1)
        figures = {"masked_loss": masked_loss, "masked_accuracy": right / max(count, 1)}
        nats, right, count = self.sentences
        if count:
            figures["next_sentence_accuracy"] = right / count
        # Training optimises the sum of the objectives, each divided by its own count.
        return {"loss": masked_loss + nats / max(count, 1), **figures}

    def lines(self, in_float32: MaskedReport | None = None) -> list[str]:
        before = {} if in_float32 is None else in_float32.metrics
        return [
            *(f"{_shown(name) + ', in float32':24}{value:.4f}" for name, value in before.items()),
            *(f"{_shown(name):24}{value:.4f}" for name, value in self.metrics.items()),
            f"protocol: {self.protocol}",
        ]


def measure(model: Transformer, batches: data.MaskedBatches) -> MaskedReport:
    """Score every row of `batches` once, masked as in their first epoch."""
    head = model.head
    assert isinstance(head, heads.MaskedToken | Pretraining)
    token_head = head.token_head
    tokens, sentences = np.zeros(3), np.zeros(3)
    rows, parts = 0, []
    with inference_mode(model) as device:
        for step in range(batches.steps_per_epoch):
            arrays = batches.batch(step)
            batch = as_tensors(arrays)
            attention_mask = torch.from_numpy(arrays.attention_mask).to(device)
            segments = None if batch.segments is None else batch.segments.to(device)
            hidden = model.hidden(batch.tokens.to(device), attention_mask, segments)
            targets = torch.from_numpy(arrays.targets).to(device)
            masked = targets != IGNORE
            counted = _count(token_head(hidden[masked]), targets[masked])
            parts.append(float(counted[0]))
            tokens += counted
            if arrays.labels is not None:
                assert isinstance(head, Pretraining)
                labels = torch.from_numpy(arrays.labels).to(device)
                sentences += _count(head.sentence(hidden, attention_mask), labels)
            rows += len(arrays.ids)
    return MaskedReport(_numbers(tokens), _numbers(sentences), rows, tuple(parts))


def _count(
    logits: torch.Tensor, targets: torch.Tensor
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    sums, _ = heads.cross_entropy(logits, targets)
    right = (logits.argmax(-1) == targets).sum()
    return np.array([float(sums.double().sum()), float(right), float(len(targets))])


def _numbers(counted: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, int, int]:
    nats, right, count = counted.tolist()
    return nats, int(right), int(count)


def _shown(name: str) -> str:
    return name.replace("_", " ")
