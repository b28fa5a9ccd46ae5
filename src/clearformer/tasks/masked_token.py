"""Masked language modelling: a model learns to predict hidden tokens.

Documents are the rows of a table (of a labelled corpus all but the test part, unlabelled texts
too) or the files of a text.
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
from clearformer.tasks import sources
from clearformer.tasks.documents import documents, open_documents
from clearformer.tasks.measured import Measured, evaluating, shares
from clearformer.tasks.task import (
    EvaluationData,
    EvaluationRequest,
    LoadedTask,
    Material,
    Report,
    Sides,
    Task,
)
from clearformer.text import Tokenizer

MOST_VALIDATION = 2**16  # tokens evaluated during training: an indicator
EVALUATION_SEED = 0  # what is hidden in an evaluation is the same for every run and step
EVALUATION_BATCH = 16


class Masking(LoadedTask):
    """Documents with some of their tokens hidden."""

    task: MaskedTokenTask

    def _load(
        self, config: RunConfig, places: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        train = config.train
        training, validation = documents(config.data, places, config.model.length, train.seed)
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
            self.config, held_back, self.tokenizer, MOST_VALIDATION
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{encoded.sha256()} {held_back.sha256()}"
        scale = (
            f"guessing hidden tokens by how common they are gives a masked loss of "
            f"{by_frequency(encoded, held_back, self.tokenizer.size):.2f}"
        )
        self.notes = (*notes, scale)

    def batch(self, step: int) -> Batch:
        return as_tensors(self.batches.batch(step))

    def evaluate(self, model: Transformer) -> Measured:
        found = measure(model, self.validation)
        return Measured(found.metrics, found.scores, found.described(self.config))

    def chance(self) -> float:
        return self.task.chance(self.tokenizer.size)


class MaskedTokenTask(Task):
    """Predict the hidden tokens of a text."""

    metric: ClassVar[str] = "masked_loss"
    counted: ClassVar[str] = "hidden tokens"
    layout: ClassVar[type[data.SingleSpan] | type[data.SentencePairs]] = data.SingleSpan
    loaded: ClassVar[type[LoadedTask] | None] = Masking

    def training_material(self, config: RunConfig, places: data.DataFolders) -> Material:
        length, seed = config.model.length, config.train.seed
        return documents(config.data, places, length, seed)[0].material

    def example(self, config: RunConfig, rows: int, sides: Sides) -> tuple[Any, Any]:
        ids = torch.zeros(rows, config.model.length, dtype=torch.long)
        share = config.data.masking.rate if config.data.masking is not None else 1.0
        # Spread evenly: a place is hidden where the hidden ones so far reach the next whole number.
        reached = (torch.arange(ids.numel() + 1, dtype=torch.float64) * share).floor()
        hidden = (reached.diff() > 0).view_as(ids)
        targets = ids.masked_fill(~hidden, IGNORE)  # the loss is over what is hidden, and no more
        return self.example_batch(ids, targets, ids if config.model.segments else None), None

    def example_batch(
        self, ids: torch.Tensor, targets: torch.Tensor, segments: torch.Tensor | None
    ) -> Batch:
        return Batch(ids, targets, ids == 0, segments)

    def chance(self, vocabulary: int) -> float:
        """The loss of a model that has learned nothing."""
        return math.log(vocabulary)

    def batches(
        self,
        config: RunConfig,
        documents: data.Documents,
        tokenizer: Tokenizer,
        batch: int,
        seed: int,
        most: int | None = None,
    ) -> data.MaskedBatches:
        """Batches of the documents, hidden as the config says."""
        how = config.data.masking
        if how is None:
            raise ValueError(
                f"{config.model.name} learns from hidden tokens, but data.masking is absent: "
                f"give a Masking()"
            )
        hiding = data.MaskingPolicy(
            how.rate, how.mask_replace, how.random_replace, data.UNITS[how.unit]
        )
        return data.MaskedBatches(
            documents, tokenizer, config.model.length, batch, seed, self.layout(), hiding, most
        )

    def evaluation_batches(
        self,
        config: RunConfig,
        documents: data.Documents,
        tokenizer: Tokenizer,
        most_tokens: int,
    ) -> data.MaskedBatches:
        """Rows of about `most_tokens` tokens, spread over the documents; one epoch is all."""
        most = max(2, most_tokens // config.model.length)
        return self.batches(config, documents, tokenizer, EVALUATION_BATCH, EVALUATION_SEED, most)

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        config, options, places = request.config, request.options, request.places
        if options.own_part is not None:
            both = documents(config.data, places, config.model.length, config.train.seed)
            source = both[options.own_part]
        else:
            name, column = (
                options.data or config.data.source,
                options.text or config.data.text_column,
            )
            source = open_documents(name, options.part, column, places)
        encoded = data.encode_documents(source.name, source.documents(), request.tokenizer)
        batches = self.evaluation_batches(config, encoded, request.tokenizer, options.most)
        return EvaluationData(request, source.name, source.material, batches)

    def measure(self, model: Transformer, found: EvaluationData) -> MaskedReport:
        report, request = measure(model, found.content), found.request
        protocol = f"{report.described(request.config)}; {request.options.describe(found.name)}"
        return replace(report, protocol=protocol)


def as_tensors(found: data.MaskedBatch) -> Batch:
    arrays = found.tokens, found.targets, found.attention_mask
    tokens, targets, attention_mask = map(torch.from_numpy, arrays)
    if found.labels is None:
        return Batch(tokens, targets, attention_mask)
    labels, segments = torch.from_numpy(found.labels), torch.from_numpy(found.segments)
    return Batch(tokens, (targets, labels), attention_mask, segments)


def by_frequency(training: data.Documents, held_back: data.Documents, size: int) -> float:
    """The validation loss of guessing each token by its frequency in the training documents."""
    counts = np.bincount(training.flat, minlength=size) + 1.0  # one for what was never seen
    return float(-np.log(counts / counts.sum())[held_back.flat].mean())


@dataclass(frozen=True)
class MaskedReport(Report):
    """A masked model on hidden tokens: nats and right answers, each with how many there were."""

    masked: tuple[float, int, int]  # nats, right, all hidden tokens
    sentences: tuple[float, int, int]  # the same of pairs; zeros: there are none
    rows: int
    parts: tuple[float, ...]  # the nats of the hidden tokens of some rows each
    protocol: str = ""

    @property
    def scores(self) -> list[float]:
        """Losses of the parts, such that their mean is the masked loss."""
        return shares(self.parts, max(self.masked[2], 1))

    def described(self, config: RunConfig) -> str:
        """How the metrics were measured."""
        how = config.data.masking
        assert how is not None
        return (
            f"{self.masked[2]:,} hidden tokens in {self.rows:,} rows of up to "
            f"{config.model.length} tokens, hidden as in training ({how.rate:.0%}, by "
            f"{how.unit}), the same at every evaluation"
        )

    @property
    def metrics(self) -> dict[str, float]:
        nats, right, count = self.masked
        masked_loss = nats / max(count, 1)
        figures = {"masked_loss": masked_loss, "masked_accuracy": right / max(count, 1)}
        nats, right, count = self.sentences
        if count:
            figures["next_sentence_accuracy"] = right / count
        # What training optimises: the objectives, each over its own count, together.
        return {"loss": masked_loss + nats / max(count, 1), **figures}

    def lines(self, in_float32: MaskedReport | None = None) -> list[str]:
        before = {} if in_float32 is None else in_float32.metrics
        return [
            *(f"{_shown(name) + ', in float32':24}{value:.4f}" for name, value in before.items()),
            *(f"{_shown(name):24}{value:.4f}" for name, value in self.metrics.items()),
            f"protocol: {self.protocol}",
        ]


def measure(model: Transformer, given: data.MaskedBatches) -> MaskedReport:
    """Every row of `given` once, with what is hidden in its first epoch."""
    head = model.head
    assert isinstance(head, heads.MaskedToken | Pretraining)
    masked = head.token_head
    words, pairs = np.zeros(3), np.zeros(3)
    rows, parts = 0, []
    with evaluating(model) as device:
        for step in range(given.steps_per_epoch):
            found = given.batch(step)
            batch = as_tensors(found)
            attention_mask = torch.from_numpy(found.attention_mask).to(device)
            segments = None if batch.segments is None else batch.segments.to(device)
            hidden = model.hidden(batch.tokens.to(device), attention_mask, segments)
            targets = torch.from_numpy(found.targets).to(device)
            places = targets != IGNORE
            counted = _count(masked(hidden[places]), targets[places])
            parts.append(float(counted[0]))
            words += counted
            if found.labels is not None:
                assert isinstance(head, Pretraining)
                labels = torch.from_numpy(found.labels).to(device)
                pairs += _count(head.sentence(hidden, attention_mask), labels)
            rows += len(found.ids)
    return MaskedReport(_numbers(words), _numbers(pairs), rows, tuple(parts))


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
