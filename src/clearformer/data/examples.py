"""Examples with a segment for each token and targets of any shape, and batches of them.

A pair of texts, a sentence with a label for each word and a question with its context are all one
row of tokens; what differs is the target: one class, one for each token, or two positions.

Axes: B batch, T tokens.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from clearformer.data.rows import batch_width, similar_lengths
from clearformer.data.shuffle import draws, epoch_of
from clearformer.text.tokenizer import Tokenizer

IGNORE = -100  # the target of a position without one, as in core.heads

Array = NDArray[np.int64]
Collate = Callable[[Sequence[Array], int], Array]  # targets of rows, and the width of their batch


@dataclass(frozen=True)
class Example:
    """One row."""

    tokens: NDArray[np.int32]  # (T,)
    segments: NDArray[np.int32]  # (T,): 0 for the first text, 1 for the second
    target: Array  # of any shape; `Examples.collate` knows it


def stacked(targets: Sequence[Array], width: int) -> Array:
    """Targets of one shape: one for a whole row, or a fixed number of them."""
    return np.stack(targets)


def padded(targets: Sequence[Array], width: int) -> Array:
    """A target for each token: (B, T), IGNORE for padding."""
    table = np.full((len(targets), width), IGNORE, dtype=np.int64)
    for row, target in enumerate(targets):
        table[row, : len(target)] = target
    return table


@dataclass(frozen=True)
class Examples:
    """Rows, and how their targets become those of a batch."""

    rows: tuple[Example, ...]
    collate: Collate
    padding: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def sha256(self) -> str:
        """Identity: tokens, segments and targets of all rows."""
        digest = hashlib.sha256()
        for row in self.rows:
            for array in (row.tokens, row.segments, row.target):
                digest.update(np.int64(array.size).tobytes())
                digest.update(array.astype("<i8").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class ExampleBatch:
    """Rows padded on the right."""

    tokens: Array  # (B, T)
    attention_mask: NDArray[np.bool_]  # (B, T), True = a real token
    segments: Array  # (B, T)
    targets: Array
    ids: Array  # (B,) which rows these are


class ExampleBatches:
    """Every row once per epoch, batched by similar length, as a function of (seed, step)."""

    def __init__(self, examples: Examples, batch: int, seed: int, length: int) -> None:
        draws(0, seed, 0)  # checks the seed
        self.examples = examples
        self.size = batch
        self.length = length
        lengths = _lengths(examples)
        self._plan = lru_cache(maxsize=2)(
            lambda epoch: similar_lengths(lengths, batch, seed, epoch)
        )

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.examples) // self.size)

    def sample_ids(self, step: int) -> Array:
        """Which rows are in the batch of this step: (B,)."""
        epoch, index = epoch_of(step, self.steps_per_epoch)
        return self._plan(epoch)[index]

    def batch(self, step: int) -> ExampleBatch:
        return pad_examples(self.examples, self.sample_ids(step), self.length)


def evaluation_examples(examples: Examples, batch: int, length: int) -> Iterator[ExampleBatch]:
    """Every row once, sorted by length; `ids` are their indices."""
    order = np.argsort(_lengths(examples), kind="stable")
    for first in range(0, len(order), batch):
        yield pad_examples(examples, order[first : first + batch], length)


def pad_examples(examples: Examples, ids: Array, length: int) -> ExampleBatch:
    """These rows as one batch, about as wide as its longest row."""
    rows = [examples.rows[i] for i in ids.tolist()]
    lengths = np.array([len(row.tokens) for row in rows])
    width = batch_width(max(1, int(lengths.max())), length)
    tokens = np.full((len(rows), width), examples.padding, dtype=np.int64)
    segments = np.zeros((len(rows), width), dtype=np.int64)
    for i, row in enumerate(rows):
        tokens[i, : len(row.tokens)] = row.tokens
        segments[i, : len(row.segments)] = row.segments
    real = np.arange(width) < lengths[:, None]
    targets = examples.collate([row.target for row in rows], width)
    return ExampleBatch(tokens, real, segments, targets, ids)


def _lengths(examples: Examples) -> Array:
    return np.array([len(row.tokens) for row in examples.rows], dtype=np.int64)


# --- two texts in one row ------------------------------------------------------------------


@dataclass(frozen=True)
class PairLayout:
    """Two texts in a row: prefix, first, separator, second, suffix."""

    prefix: tuple[int, ...]
    separator: tuple[int, ...]
    suffix: tuple[int, ...]

    @property
    def marks(self) -> int:
        """Special tokens in a row."""
        return len(self.prefix) + len(self.separator) + len(self.suffix)

    def second_start(self, first: int) -> int:
        """Where the second text begins if the first has so many tokens."""
        return len(self.prefix) + first + len(self.separator)

    def join(
        self, first: Sequence[int], second: Sequence[int]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Tokens and segments: [CLS] first [SEP] second [SEP] for BERT."""
        start = (*self.prefix, *first, *self.separator)
        tokens = np.array((*start, *second, *self.suffix), dtype=np.int32)
        return tokens, (np.arange(len(tokens)) >= len(start)).astype(np.int32)


def pair_layout(tokenizer: Tokenizer) -> PairLayout:
    """How a tokenizer joins two texts; one without special tokens puts a line break between."""
    separator = tokenizer.suffix_ids or tuple(tokenizer.encode("\n").tolist())
    return PairLayout(tokenizer.prefix_ids, separator, tokenizer.suffix_ids)


def cut_pair(first: int, second: int, capacity: int) -> tuple[int, int]:
    """How many tokens of each text fit together: the longer one is cut, then both alike."""
    if first + second <= capacity:
        return first, second
    half = capacity // 2
    if first <= half:
        return first, capacity - first
    if second <= half:
        return capacity - second, second
    return capacity - half, half
