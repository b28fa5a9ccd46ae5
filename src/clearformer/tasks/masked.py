"""Finding hidden tokens, and telling whether one sentence follows another: how BERT learns.

The head decides: `Pretraining` has both objectives and reads pairs, `MaskedToken` the first
alone and reads single stretches. Documents are the rows of a table (of a labelled corpus all
but the test part, unlabelled texts too) or the files of a text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch

from clearformer import data
from clearformer.config import DataConfig, Pretraining, RunConfig
from clearformer.core import heads
from clearformer.core.heads import IGNORE
from clearformer.core.model import Batch, Transformer
from clearformer.tasks import objectives
from clearformer.tasks.evaluate import Measured, evaluating, shares
from clearformer.text import Tokenizer

MOST_VALIDATION = 2**16  # tokens evaluated during training, as in tasks.py: an indicator
EVALUATION_SEED = 0  # what is hidden in an evaluation is the same for every run and step
EVALUATION_BATCH = 16


class Masking:
    """Find the hidden tokens of a text."""

    figure = "masked_loss"
    larger_is_better = False
    counted = "hidden tokens"

    def __init__(
        self, config: RunConfig, places: data.DataFolders, tokenizer: Tokenizer | None = None
    ) -> None:
        training, validation = sources(config.data, places, config.model.length, config.train.seed)
        self.tokenizer, notes = objectives.tokenizer_for(
            config.data, training.chunks, training.size, tokenizer
        )
        self.config = replace(config, model=replace(config.model, vocabulary=self.tokenizer.size))
        documents = data.encode_documents(training.name, training.documents(), self.tokenizer)
        held_back = data.encode_documents(validation.name, validation.documents(), self.tokenizer)
        train = config.train
        self.batches = batches(self.config, documents, self.tokenizer, train.batch, train.seed)
        self.validation = evaluation_batches(
            self.config, held_back, self.tokenizer, MOST_VALIDATION
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{documents.sha256()} {held_back.sha256()}"
        scale = (
            f"guessing hidden tokens by how common they are gives a masked loss of "
            f"{by_frequency(documents, held_back, self.tokenizer.size):.2f}"
        )
        self.notes = (*notes, scale)

    def batch(self, step: int) -> Batch:
        return as_tensors(self.batches.batch(step))

    def evaluate(self, model: Transformer) -> Measured:
        found = measure(model, self.validation)
        return Measured(found.figures(), found.scores, found.protocol(self.config))

    def chance(self) -> float:
        pairs = math.log(2) if isinstance(self.config.model.head, Pretraining) else 0.0
        return math.log(self.tokenizer.size) + pairs


# --- what is learned from ------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Texts that can be read more than once, as documents and as chunks of any size."""

    name: str
    size: int  # bytes
    documents: Callable[[], Iterable[str]]
    chunks: Callable[[], Iterable[str]]
    material: data.TextSource | tuple[str, ...]  # what they are read from


def sources(
    config: DataConfig, places: data.DataFolders, length: int, seed: int
) -> tuple[Source, Source]:
    """The documents to learn from, and those held back."""
    corpus = _corpus(config.source)
    if (corpus is None and not data.is_table(config.source)) or isinstance(corpus, data.TextCorpus):
        training, validation = objectives.texts(config, places, length)
        data.fingerprint_together(training, validation)  # from here on, a change is noticed
        return _of_text(training), _of_text(validation)
    table = (
        data.read_table(config.source, config.text, None)
        if corpus is None
        else _without_labels(corpus, places)
    )
    if config.validation is not None:
        return _of_table(table), _of_file(config.validation, config.text)
    kept, held_back = data.split_rows(table, config.validation_share, seed)
    return _of_table(kept), _of_table(held_back)


def open_source(source: str, part: str, column: str, places: data.DataFolders) -> Source:
    """The documents of a part of a corpus, or all of a file of one's own."""
    corpus = _corpus(source)
    if corpus is None:
        return _of_file(source, column)
    found = corpus.read(part, places)
    return _of_text(found) if isinstance(found, data.TextSource) else _of_table(found)


def _corpus(name: str) -> data.TextCorpus | data.LabelledCorpus | None:
    """A corpus of single texts; none: the name is that of a file."""
    corpus = data.CORPORA.get(name)
    if isinstance(corpus, data.PairCorpus):
        raise ValueError(
            f"{name} is of pairs, but a masked model reads single texts: choose another corpus, "
            f"or a file"
        )
    return corpus


def _of_file(path: str, column: str) -> Source:
    if data.is_table(path):
        return _of_table(data.read_table(path, column, None))
    return _of_text(data.open_text(path))


def _without_labels(corpus: data.LabelledCorpus, places: data.DataFolders) -> data.Table:
    """All texts but those of the test, labelled or not."""
    parts = [corpus.read(part, places) for part in corpus.parts if part != "test"]
    texts = tuple(text for part in parts for text in part.texts)
    return data.Table(corpus.name, texts, None)


def _of_text(text: data.TextSource) -> Source:
    return Source(text.name, text.size, lambda: data.file_texts(text), text.decoded, text)


def _of_table(table: data.Table) -> Source:
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in table.texts)
    return Source(table.name, size, lambda: table.texts, lambda: table.texts, table.texts)


def batches(
    config: RunConfig,
    documents: data.Documents,
    tokenizer: Tokenizer,
    batch: int,
    seed: int,
    most: int | None = None,
) -> data.MaskedBatches:
    """Batches as the model's head wants them, hidden as the config says."""
    how = config.data.masking
    if how is None:
        raise ValueError(
            f"{config.model.name} learns from hidden tokens, but data.masking is absent: "
            f"give a Masking()"
        )
    layout = data.SentencePairs if isinstance(config.model.head, Pretraining) else data.SingleSpan
    hiding = data.MaskingPolicy(how.share, how.mask, how.random, data.UNITS[how.unit])
    return data.MaskedBatches(
        documents, tokenizer, config.model.length, batch, seed, layout(), hiding, most
    )


def evaluation_batches(
    config: RunConfig, documents: data.Documents, tokenizer: Tokenizer, most_tokens: int
) -> data.MaskedBatches:
    """Rows of about `most_tokens` tokens, spread over the documents; one epoch is all."""
    most = max(2, most_tokens // config.model.length)
    return batches(config, documents, tokenizer, EVALUATION_BATCH, EVALUATION_SEED, most)


def as_tensors(found: data.MaskedBatch) -> Batch:
    tokens, targets, keep = map(torch.from_numpy, (found.tokens, found.targets, found.keep))
    if found.labels is None:
        return Batch(tokens, targets, keep)
    labels, segments = torch.from_numpy(found.labels), torch.from_numpy(found.segments)
    return Batch(tokens, (targets, labels), keep, segments)


def by_frequency(training: data.Documents, held_back: data.Documents, size: int) -> float:
    """The loss on the text held back of whoever knows how common each token is, and no more."""
    counts = np.bincount(training.flat, minlength=size) + 1.0  # one for what was never seen
    return float(-np.log(counts / counts.sum())[held_back.flat].mean())


# --- what a model is worth -----------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """How a masked model did: nats and right answers, each with how many there were."""

    masked: tuple[float, int, int]  # nats, right, all hidden tokens
    sentences: tuple[float, int, int]  # the same of pairs; zeros: there are none
    rows: int
    parts: tuple[float, ...]  # the nats of the hidden tokens of some rows each

    @property
    def scores(self) -> list[float]:
        """Losses of the parts, such that their mean is the masked loss."""
        return shares(self.parts, max(self.masked[2], 1))

    def protocol(self, config: RunConfig) -> str:
        how = config.data.masking
        assert how is not None
        return (
            f"{self.masked[2]:,} hidden tokens in {self.rows:,} rows of up to "
            f"{config.model.length} tokens, hidden as in training ({how.share:.0%}, by "
            f"{how.unit}), the same at every evaluation"
        )

    def figures(self) -> dict[str, float]:
        nats, right, count = self.masked
        masked_loss = nats / max(count, 1)
        figures = {"masked_loss": masked_loss, "masked_accuracy": right / max(count, 1)}
        nats, right, count = self.sentences
        if count:
            figures["next_sentence_accuracy"] = right / count
        # What training optimises: the objectives, each over its own count, together.
        return {"loss": masked_loss + nats / max(count, 1), **figures}


def measure(model: Transformer, given: data.MaskedBatches) -> Found:
    """Every row of `given` once, with what is hidden in its first epoch."""
    head = model.head
    assert isinstance(head, heads.MaskedToken | heads.Pretraining)
    masked = head.masked if isinstance(head, heads.Pretraining) else head
    words, pairs = np.zeros(3), np.zeros(3)
    rows, parts = 0, []
    with evaluating(model) as device:
        for step in range(given.steps_per_epoch):
            found = given.batch(step)
            batch = as_tensors(found)
            keep = torch.from_numpy(found.keep).to(device)
            segments = None if batch.segments is None else batch.segments.to(device)
            hidden = model.hidden(batch.tokens.to(device), keep, segments)
            targets = torch.from_numpy(found.targets).to(device)
            places = targets != IGNORE
            counted = _count(masked(hidden[places]), targets[places])
            parts.append(float(counted[0]))
            words += counted
            if found.labels is not None:
                assert isinstance(head, heads.Pretraining)
                labels = torch.from_numpy(found.labels).to(device)
                pairs += _count(head.sentence(hidden, keep), labels)
            rows += len(found.ids)
    return Found(_numbers(words), _numbers(pairs), rows, tuple(parts))


def _count(
    logits: torch.Tensor, targets: torch.Tensor
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    sums, _ = heads.cross_entropy(logits, targets)
    right = (logits.argmax(-1) == targets).sum()
    return np.array([float(sums.double().sum()), float(right), float(len(targets))])


def _numbers(counted: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, int, int]:
    nats, right, count = counted.tolist()
    return nats, int(right), int(count)
