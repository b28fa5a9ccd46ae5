"""What a model is worth: bits per byte of a text, and figures of a classifier.

A figure is nothing without its protocol, so each comes with one: how much context a token was
predicted from, how the first ones count, how many rows there were.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearformer import data
from clearformer.config import HiddenMemory, ModelConfig, RunConfig
from clearformer.core.cache import Cache
from clearformer.core.heads import IGNORE
from clearformer.core.model import Batch, Transformer
from clearformer.inference import modes
from clearformer.inference.caches import KVMemory
from clearformer.text import Tokenizer

LOGITS = 2**26  # numbers that may be in memory at a time, 256 MB
# What is unknown to a tokenizer, or changed by it, is never predicted, and cheap to get right.
LOST = (
    "; its tokenizer does not keep all of this text (unknown words, lower case), so bits per byte "
    "compare only between models that share it"
)
GROUPS = 32  # parts of a text that are scored one by one, at least: they tell a standard error


@dataclass(frozen=True)
class Measured:
    """What an evaluation during training found."""

    figures: dict[str, float]
    scores: Sequence[float]  # of each text or part of a text; their mean is the deciding figure
    protocol: str  # how the figures were found

    @property
    def error(self) -> float | None:
        """The standard error of the deciding figure."""
        return standard_error(self.scores)


def standard_error(scores: Sequence[float]) -> float | None:
    """Of the mean of scores that do not depend on one another; None: it cannot be told."""
    if len(scores) < 2:
        return None
    error = float(torch.tensor(scores, dtype=torch.float64).std()) / math.sqrt(len(scores))
    return error if math.isfinite(error) else None


def shares(sums: Sequence[float], total: float) -> list[float]:
    """Parts of a sum, as scores whose mean is that sum over `total`."""
    return [each * len(sums) / total for each in sums]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[torch.device]:
    """A model in evaluation mode, without gradients; how it was comes back afterwards."""
    with modes.evaluating(model), torch.inference_mode():
        yield next(model.parameters()).device


@dataclass(frozen=True)
class Compression:
    """How well a text was predicted; every token but the first was scored once."""

    nats: float
    tokens: int
    size: int  # bytes of the scored tokens
    characters: int
    context: int
    stride: int
    parts: tuple[float, ...]  # the nats of some windows each
    kept: bool  # whether the tokens stand for all of the text

    @property
    def scores(self) -> list[float]:
        """Bits per byte of each part, such that their mean is that of the text."""
        return shares(self.parts, math.log(2) * self.size)

    @property
    def loss(self) -> float:
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """Of a token; to be compared between models with the same tokenizer alone."""
        return math.exp(self.loss)

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.size

    @property
    def bits_per_character(self) -> float:
        return self.nats / math.log(2) / self.characters

    @property
    def protocol(self) -> str:
        lost = "" if self.kept else LOST
        return (
            f"{self.tokens:,} tokens ({self.size:,} bytes), all but the first, each scored once in "
            f"{self._windows}{lost}"
        )

    @property
    def _windows(self) -> str:
        sees = self.context - self.stride
        return (
            f"windows of {self.context} tokens {self.stride} apart: after the first window a "
            f"token is predicted from at least {sees} others"
        )


def compress(
    model: Transformer,
    tokens: data.TokenFile,
    tokenizer: Tokenizer,
    context: int,
    stride: int,
    batch: int = 16,
) -> Compression:
    """Score a text with windows of `context` tokens, `stride` apart."""
    parts, count = [], 0
    # The logits of a large vocabulary are the largest tensor there is: fewer windows at a time.
    batch = min(batch, LOGITS // (context * tokenizer.size), len(tokens) // stride // GROUPS)
    batch = max(1, batch)
    with evaluating(model) as device:
        for window in data.evaluation_windows(tokens, context, stride, batch, IGNORE):
            sums, counts = model.loss(
                Batch(
                    torch.from_numpy(window.tokens).to(device),
                    torch.from_numpy(window.targets).to(device),
                )
            )
            parts.append(float(sums.double().sum()))
            count += int(counts.sum())
    size, characters, kept = _scored(tokens, tokenizer)
    return Compression(
        sum(parts),
        count,
        size,
        characters,
        min(context, len(tokens) - 1),
        min(stride, len(tokens) - 1),
        tuple(parts),
        kept,
    )


@dataclass(frozen=True)
class SegmentCompression(Compression):
    """How well a text was predicted by a model that remembers; the stride is the segment."""

    memory: int
    streams: int

    @property
    def _windows(self) -> str:
        together = f", in {self.streams} streams that each read {self.memory} tokens before theirs"
        return (
            f"segments of {self.stride} tokens with a memory of {self.memory}"
            f"{together if self.streams > 1 else ''}"
        )


def compress_segments(
    model: Transformer,
    config: ModelConfig,
    tokens: data.TokenFile,
    tokenizer: Tokenizer,
    *,
    segment: int | None = None,
    memory: int | None = None,
    streams: int = 8,
) -> SegmentCompression:
    """Score a text segment by segment, with a memory of any length, trained with it or not."""
    assert isinstance(config.past, HiddenMemory)
    segment = config.length if segment is None else segment
    memory = config.past.length if memory is None else memory
    caches: list[Cache] = [KVMemory(memory) for _ in range(config.layers)]
    parts, count, rows = [], 0, 1
    with evaluating(model) as device:
        for piece in data.evaluation_segments(tokens, segment, streams, memory, IGNORE):
            rows = len(piece.tokens)
            batch = Batch(
                torch.from_numpy(piece.tokens).to(device),
                torch.from_numpy(piece.targets).to(device),
            )
            sums, counts = model.loss(batch, caches)
            for each in caches:
                each.advance()
            parts.append(float(sums.double().sum()))
            count += int(counts.sum())
    size, characters, kept = _scored(tokens, tokenizer)
    return SegmentCompression(
        sum(parts),
        count,
        size,
        characters,
        segment + memory,
        segment,
        tuple(parts),
        kept,
        memory,
        rows,
    )


def _scored(tokens: data.TokenFile, tokenizer: Tokenizer) -> tuple[int, int, bool]:
    """Bytes and characters of all tokens but the first, and whether they stand for all of it."""
    first = tokenizer.decode(tokens.read(0, 1))
    text = tokenizer.decode(tokens.read(0, len(tokens)))
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    size = max(1, tokens.text_bytes - len(first.encode()))
    return size, max(1, len(text) - len(first)), found == tokens.description.text_sha256


def predict(model: Transformer, rows: data.Rows, config: RunConfig, batch: int = 32) -> Tensor:
    """Probabilities of each class for each row, in the rows' order: (rows, classes)."""
    found = torch.zeros(len(rows), len(rows.names))
    with evaluating(model) as device:
        for each in data.evaluation_rows(rows, batch, config.model.length, config.data.cut):
            logits = model(
                torch.from_numpy(each.tokens).to(device), torch.from_numpy(each.keep).to(device)
            )
            found[torch.from_numpy(each.ids)] = logits.float().softmax(dim=-1).cpu()
    return found


def rows_protocol(rows: data.Rows, length: int, cut: str) -> str:
    """How many texts are classified, and how many of them not as a whole."""
    few = data.count_truncated(rows, length)
    shown = f"; {few:,} longer than {length} tokens and cut (kept: {cut})" if few else ""
    return f"{len(rows):,} texts{shown}"


@dataclass(frozen=True)
class Report:
    """A classifier on labelled rows; row i of the confusion is true class i, column the guess."""

    names: tuple[str, ...]
    confusion: Tensor  # (classes, classes)
    loss: float
    calibration: float

    @property
    def accuracy(self) -> float:
        return float(self.confusion.diagonal().sum() / self.confusion.sum())

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


def report(probabilities: Tensor, labels: Tensor, names: tuple[str, ...]) -> Report:
    """Compare guesses (rows, classes) with labels (rows,)."""
    classes = len(names)
    confidence, guess = probabilities.max(dim=1)
    confusion = torch.zeros(classes, classes, dtype=torch.long)
    confusion.index_put_((labels, guess), torch.ones_like(labels), accumulate=True)
    own = probabilities.gather(1, labels[:, None])[:, 0]
    return Report(
        names,
        confusion,
        float(-own.clamp(min=1e-12).log().mean()),
        _calibration_error(confidence, guess == labels),
    )


def _calibration_error(confidence: Tensor, right: Tensor, bins: int = 10) -> float:
    """By how much confidence and accuracy differ, on average over bins of confidence."""
    place = (confidence * bins).long().clamp(max=bins - 1)
    total = 0.0
    for each in range(bins):
        inside = place == each
        if inside.any():
            gap = (confidence[inside].mean() - right[inside].float().mean()).abs()
            total += float(gap * inside.float().mean())
    return total
