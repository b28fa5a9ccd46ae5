"""Compression of a text by a language model: bits per byte, perplexity, and their protocol."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch

from clearformer import data
from clearformer.config import ModelConfig
from clearformer.core.cache import Cache
from clearformer.core.heads import IGNORE
from clearformer.core.model import Batch, Transformer
from clearformer.inference.caches import KVMemory
from clearformer.inference.modes import inference_mode
from clearformer.tasks.measured import Measured, shares
from clearformer.text import Tokenizer

MAX_LOGITS = 2**26  # in memory at a time, 256 MB
# Unknown or normalized text is never predicted as it was, so the loss is too low.
LOSSY = (
    "; its tokenizer does not keep all of this text (unknown words, lower case), so bits per byte "
    "are comparable only between models that share it"
)
GROUPS = 32  # minimum number of parts that are scored separately, for the standard error


@dataclass(frozen=True)
class Compression:
    """Scores of a text; each token but the first was scored once."""

    nats: float
    tokens: int
    size: int  # bytes of the scored tokens
    characters: int
    context: int
    stride: int
    parts: tuple[float, ...]  # nats of each batch of windows
    lossless: bool  # whether decoding the tokens restores the text

    @property
    def scores(self) -> list[float]:
        """Bits per byte of each part, scaled so that their mean is that of the text."""
        return shares(self.parts, math.log(2) * self.size)

    @property
    def loss(self) -> float:
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """Perplexity per token; comparable only between models with the same tokenizer."""
        return math.exp(self.loss)

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.size

    @property
    def bits_per_character(self) -> float:
        return self.nats / math.log(2) / self.characters

    @property
    def measured(self) -> Measured:
        figures = {"loss": self.loss, "bits_per_byte": self.bits_per_byte}
        return Measured(figures, self.scores, self.protocol)

    @property
    def protocol(self) -> str:
        lossy = "" if self.lossless else LOSSY
        return (
            f"{self.tokens:,} tokens ({self.size:,} bytes), all but the first, each scored once in "
            f"{self._windows}{lossy}"
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
    # The logits of a large vocabulary are the largest tensor: score fewer windows at a time.
    batch = min(batch, MAX_LOGITS // (context * tokenizer.size), len(tokens) // stride // GROUPS)
    batch = max(1, batch)
    with inference_mode(model) as device:
        for window in data.evaluation_windows(tokens, context, stride, batch, IGNORE):
            sums, counts = model.loss(
                Batch(
                    torch.from_numpy(window.tokens).to(device),
                    torch.from_numpy(window.targets).to(device),
                )
            )
            parts.append(float(sums.double().sum()))
            count += int(counts.sum())
    size, characters, lossless = _scored(tokens, tokenizer)
    return Compression(
        sum(parts),
        count,
        size,
        characters,
        min(context, len(tokens) - 1),
        min(stride, len(tokens) - 1),
        tuple(parts),
        lossless,
    )


@dataclass(frozen=True)
class SegmentCompression(Compression):
    """Scores of a text by a model with a memory; the stride is the segment length."""

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
    """Score a text segment by segment; `memory` may differ from that of the training."""
    segment = config.length if segment is None else segment
    memory = config.memory if memory is None else memory
    assert memory is not None
    caches: list[Cache] = [KVMemory(memory) for _ in range(config.layers)]
    parts, count, rows = [], 0, 1
    with inference_mode(model) as device:
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
    size, characters, lossless = _scored(tokens, tokenizer)
    return SegmentCompression(
        sum(parts),
        count,
        size,
        characters,
        segment + memory,
        segment,
        tuple(parts),
        lossless,
        memory,
        rows,
    )


def _scored(tokens: data.TokenFile, tokenizer: Tokenizer) -> tuple[int, int, bool]:
    """Bytes and characters of all tokens but the first, and whether decoding restores the text."""
    first = tokenizer.decode(tokens.read(0, 1))
    text = tokenizer.decode(tokens.read(0, len(tokens)))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    size = max(1, tokens.text_bytes - len(first.encode()))
    return size, max(1, len(text) - len(first)), digest == tokens.description.text_sha256
