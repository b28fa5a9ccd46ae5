"""Arithmetic coding of token streams by the probabilities of a predictor.

The range coder is that of the library constriction. It works with integers: the frequencies of a
token's alternatives sum to 2^24, and none is 0, so that no token is impossible. They come from the
logits by a fixed rule (`frequencies`).

Encoder and decoder are one loop, `code`: the same calls in batches of the same shape. Only that
makes their floating-point numbers equal bit for bit.

Axes: S streams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol as Interface

import constriction
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from clearformer.core.heads import at_least_float32

PRECISION = 24  # bits of the integers that constriction codes with
SCALE = 2.0**40
# `perfect=False` is the simple rule: i + floor(c_i (2^24 - V) / c_V) is the lower end of symbol i,
# where c_i is the sum of the frequencies before it.
FAMILY = constriction.stream.model.Categorical(perfect=False)

Ids = NDArray[np.int64]
Frequencies = NDArray[np.float64]
# From the number of coded tokens of each stream and the frequencies (A, V) of the next ones of the
# first A streams to these tokens (A,): the encoder knows them, the decoder finds them.
CodeStep = Callable[[int, Frequencies], Ids]


class Predictor(Interface):
    """Predicts S streams, one token of each at a time."""

    def read(self, tokens: Ids) -> Tensor:
        """Read the next token (S,) of each stream; return the logits (S, V) of those after."""


def frequencies(logits: Tensor) -> Frequencies:
    """floor(2^40 p) + 1 of each probability p (S, V), computed from the logits as they are.

    In float64 the softmax of 32 streams over 4,096 tokens takes nine times as long as in float32,
    whose error costs 1e-7 bits. The sums of frequencies are integers below 2^53 and so exact in any
    order; constriction scales them to integers that sum to 2^24, each at least 1.
    """
    scaled = at_least_float32(logits).softmax(dim=-1).double().mul_(SCALE).floor_().add_(1)
    # One NaN or infinite logit makes the whole row NaN, so the first column tells.
    if not bool(scaled[:, 0].isfinite().all()):
        raise ValueError(
            "the model's logits are NaN or infinite, so it predicts nothing: use another checkpoint"
        )
    found: Frequencies = scaled.numpy()
    return found


def interval(table: Frequencies, token: int) -> tuple[int, int]:
    """Start and width of a token's part of 2^24, from the frequencies (V,) of all tokens."""
    ends = np.concatenate(([0.0], table.cumsum()))  # integers, so that sums are exact
    free = 2.0**PRECISION - len(table)
    starts = np.arange(len(table) + 1) + np.floor(ends * (free / ends[-1])).astype(np.int64)
    starts[-1] = 2**PRECISION
    return int(starts[token]), int(starts[token + 1] - starts[token])


def code(predictor: Predictor, counts: NDArray[np.int64], vocabulary: int, step: CodeStep) -> None:
    """Code all tokens of streams with `counts` tokens each; the first ones are uniform."""
    if not counts.sum():
        return
    table: Frequencies = np.ones((len(counts), vocabulary))
    tokens = np.zeros(len(counts), dtype=np.int64)
    for done in range(int(counts[0])):
        active = int((counts > done).sum())  # only in the last step some streams have ended
        tokens[:active] = step(done, table[:active])
        if done + 1 < counts[0]:
            table = frequencies(predictor.read(tokens))


class Encoder:
    """Encodes tokens of known streams."""

    def __init__(self, tokens: NDArray[np.generic], starts: NDArray[np.int64]) -> None:
        self.tokens, self.starts = tokens, starts
        self.coder = constriction.stream.queue.RangeEncoder()

    def __call__(self, done: int, table: Frequencies) -> Ids:
        symbols = self.tokens[self.starts[: len(table)] + done].astype(np.int32)
        self.coder.encode(symbols, FAMILY, table)
        return symbols.astype(np.int64)

    @property
    def bits(self) -> int:
        """Bits of the code so far."""
        return int(self.coder.num_bits())

    @property
    def state(self) -> tuple[int, int, int]:
        """Finished words of 32 bits, and the start and width of the interval that is left.

        Both are integers of 64 bits; the coder writes a word when the width falls below 2^32.
        """
        words, (start, width) = self.coder.pos()
        return words, start, width

    def finish(self) -> memoryview:
        """The bytes of the code."""
        return self.coder.get_compressed().astype("<u4", copy=False).view(np.uint8).data


class Decoder:
    """Decodes the tokens that an `Encoder` encoded."""

    def __init__(
        self, coded: bytes | memoryview, tokens: NDArray[np.generic], starts: NDArray[np.int64]
    ) -> None:
        self.tokens, self.starts = tokens, starts
        words = np.frombuffer(coded, dtype="<u4").astype(np.uint32, copy=False)
        self.coder = constriction.stream.queue.RangeDecoder(words)

    def __call__(self, done: int, table: Frequencies) -> Ids:
        try:
            symbols = self.coder.decode(FAMILY, table)
        except AssertionError:  # constriction's error for a code that no encoder writes
            raise ValueError(
                "the code does not belong to these probabilities: the file was not written by "
                "this model on a machine like this one"
            ) from None
        self.tokens[self.starts[: len(table)] + done] = symbols
        found: Ids = symbols.astype(np.int64)
        return found
