"""What there is to learn: a task turns data into batches and a model into figures.

A task is chosen by the model's head: a generator learns a stream of tokens, a classifier
labelled rows. It also completes the model's config with what only the data can tell, the size
of the vocabulary and the number of classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from clearformer import data
from clearformer.config import Classifier, DataConfig, NextToken, RunConfig
from clearformer.core.heads import IGNORE
from clearformer.core.model import Batch, Transformer
from clearformer.text import Tokenizer
from clearformer.text import train as train_tokenizer

MOST_VALIDATION = 2**18  # bytes of a stream that are evaluated during training


class Task(Protocol):
    """What a run needs to know of its data."""

    config: RunConfig  # completed
    tokenizer: Tokenizer
    identity: str  # of the data, so that another is not mistaken for it
    steps_per_epoch: int
    figure: str  # the name of the figure that decides which checkpoint is best
    larger_is_better: bool
    notes: tuple[str, ...]  # what the user should know about the data

    def batch(self, step: int) -> Batch: ...

    def evaluate(self, model: Transformer) -> dict[str, float]: ...

    def chance(self) -> float:
        """The loss of knowing nothing."""


def load(config: RunConfig, places: data.Places) -> Task:
    """The task that fits the model's head."""
    match config.model.head:
        case NextToken():
            return Stream(config, places)
        case Classifier():
            return Labels(config, places)
        case _:
            raise ValueError(
                f"{config.model.name} cannot be trained yet: its head is "
                f"{type(config.model.head).__name__}, and there is training for generators "
                f"and classifiers"
            )


class Stream:
    """Predict the next token of a long text."""

    figure = "bits_per_byte"
    larger_is_better = False

    def __init__(self, config: RunConfig, places: data.Places) -> None:
        training, validation = _texts(config.data, places, config.model.length)
        self.tokenizer = _tokenizer(config.data, training.decoded)
        cache = (places.cache or Path(".")) / "tokens"
        self.training = data.prepare(training, self.tokenizer, cache, places.progress)
        validation = _beginning(validation, MOST_VALIDATION)
        self.validation = data.prepare(validation, self.tokenizer, cache, places.progress)
        model = replace(config.model, vocabulary=self.tokenizer.size)
        self.config = replace(config, model=model)
        self.batches = data.StreamBatches(
            self.training, model.length, config.train.batch, config.train.seed
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{self.training.sha256} {self.validation.sha256}"
        repeated = data.repeated_text(training, validation)
        self.notes: tuple[str, ...] = ()
        if repeated > 0.1:
            self.notes = (f"{repeated:.0%} of the validation text also stands in the training",)

    def batch(self, step: int) -> Batch:
        found = self.batches.batch(step)
        return Batch(torch.from_numpy(found.tokens), torch.from_numpy(found.targets))

    def evaluate(self, model: Transformer) -> dict[str, float]:
        length = self.config.model.length
        return bits_per_byte(model, self.validation, self.tokenizer, length, stride=length)

    def chance(self) -> float:
        return math.log(self.tokenizer.size)


class Labels:
    """Tell the label of a text."""

    figure = "accuracy"
    larger_is_better = True

    def __init__(self, config: RunConfig, places: data.Places) -> None:
        training, validation = _tables(config.data, places, config.train.seed)
        self.names = data.label_names(training)
        self.tokenizer = _tokenizer(config.data, lambda: iter(training.texts))
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
            rows, config.train.batch, config.train.seed, model.length, config.data.cut
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{rows.sha256()} {self.validation.sha256()}"
        notes = []
        if self.batches.cut_rows:
            notes.append(
                f"{self.batches.cut_rows:,} of {len(rows):,} texts are longer than {model.length} "
                f"tokens and were cut (kept: {config.data.cut})"
            )
        repeated = data.repeated_rows(training, validation)
        if repeated:
            notes.append(
                f"{repeated:,} of {len(validation):,} validation texts also stand in the training"
            )
        self.notes = tuple(notes)

    def batch(self, step: int) -> Batch:
        found = self.batches.batch(step)
        return Batch(
            torch.from_numpy(found.tokens),
            torch.from_numpy(found.labels),
            torch.from_numpy(found.keep),
        )

    def evaluate(self, model: Transformer) -> dict[str, float]:
        found = predict(model, self.validation, self.config)
        return figures_of(found, self.validation.labels)

    def chance(self) -> float:
        return math.log(len(self.names))


def bits_per_byte(
    model: Transformer,
    tokens: data.TokenFile,
    tokenizer: Tokenizer,
    context: int,
    stride: int,
    batch: int = 16,
) -> dict[str, float]:
    """Score every token but the first once, from windows of `context` tokens `stride` apart."""
    total, count = 0.0, 0
    with evaluating(model) as device:
        for window in data.evaluation_windows(tokens, context, stride, batch, IGNORE):
            sums, counts = model.loss(
                Batch(
                    torch.from_numpy(window.tokens).to(device),
                    torch.from_numpy(window.targets).to(device),
                )
            )
            total += float(sums.double().sum())
            count += int(counts.sum())
    unscored = len(tokenizer.decode(tokens.read(0, 1)).encode())
    size = max(1, tokens.text_bytes - unscored)
    return {"loss": total / count, "bits_per_byte": total / math.log(2) / size}


@dataclass(frozen=True)
class Predictions:
    """Probabilities of each class for each row, in the rows' order."""

    probabilities: Tensor  # (rows, classes)


def predict(model: Transformer, rows: data.Rows, config: RunConfig, batch: int = 32) -> Predictions:
    classes = len(rows.names)
    found = torch.zeros(len(rows), classes)
    with evaluating(model) as device:
        for each in data.evaluation_rows(rows, batch, config.model.length, config.data.cut):
            logits = model(
                torch.from_numpy(each.tokens).to(device), torch.from_numpy(each.keep).to(device)
            )
            found[torch.from_numpy(each.ids)] = logits.float().softmax(dim=-1).cpu()
    return Predictions(found)


def figures_of(found: Predictions, labels: np.ndarray[Any, Any]) -> dict[str, float]:
    target = torch.from_numpy(labels)
    own = found.probabilities.gather(1, target[:, None])[:, 0]
    right = found.probabilities.argmax(dim=1) == target
    return {
        "loss": float(-own.clamp(min=1e-12).log().mean()),
        "accuracy": float(right.float().mean()),
    }


class evaluating:  # noqa: N801 (a context manager reads as a verb)
    """A model in evaluation mode, without gradients; how it was comes back afterwards."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def __enter__(self) -> torch.device:
        self.was_training = self.model.training
        self.model.eval()
        self.inference = torch.inference_mode()
        self.inference.__enter__()
        return next(self.model.parameters()).device

    def __exit__(self, *problem: object) -> None:
        self.inference.__exit__(None, None, None)
        self.model.train(self.was_training)


def _tokenizer(config: DataConfig, texts: Any) -> Tokenizer:
    if config.tokenizer == "bytes":
        return train_tokenizer("bytes", (), None)
    return train_tokenizer(config.tokenizer, texts(), config.vocabulary)


def _texts(config: DataConfig, places: data.Places, length: int) -> tuple[data.Text, data.Text]:
    if config.source in data.CORPORA:
        corpus = data.corpus(config.source)
        if not isinstance(corpus, data.TextCorpus):
            texts = [n for n, c in data.CORPORA.items() if isinstance(c, data.TextCorpus)]
            raise ValueError(
                f"{corpus.name} is a table, but a generator learns from a text: train a "
                f"classifier on it, or choose {', '.join(texts)}, or a file"
            )
        training = corpus.read("train", places)
        if config.validation is None and "validation" in corpus.parts:
            return training, corpus.read("validation", places)
    else:
        training = data.open_text(config.source)
    if config.validation is not None:
        return training, data.open_text(config.validation)
    return data.split_text(training, config.validation_share, minimum=length + 1)


def _beginning(text: data.Text, size: int) -> data.Text:
    """The first `size` bytes, and the rest of a character that they would cut."""
    if text.size <= size:
        return text
    follows = text.part(size, min(size + 4, text.size)).read()
    rest = next((i for i, byte in enumerate(follows) if byte & 0xC0 != 0x80), 0)
    return text.part(0, size + rest)


def _tables(config: DataConfig, places: data.Places, seed: int) -> tuple[data.Table, data.Table]:
    if config.source in data.CORPORA:
        corpus = data.corpus(config.source)
        if not isinstance(corpus, data.LabelledCorpus):
            labelled = [n for n, c in data.CORPORA.items() if isinstance(c, data.LabelledCorpus)]
            raise ValueError(
                f"{corpus.name} has no labels, but a classifier learns from them: choose "
                f"{', '.join(labelled)}, or a .csv, .tsv or .jsonl file"
            )
        table = corpus.read("train", places)
    else:
        table = data.read_table(config.source, config.text, config.label)
    if config.validation is not None:
        return table, data.read_table(config.validation, config.text, config.label)
    return data.split_rows(table, config.validation_share, seed)


def lines(figures: Mapping[str, float]) -> Iterator[str]:
    for name, value in figures.items():
        yield f"{name.replace('_', ' ')} {value:.4f}"
