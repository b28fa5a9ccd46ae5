"""Several texts in one row: less padding, and no text is cut.

Axes: B batch, T tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearformer.data.rows import IGNORE, batch_width
from clearformer.data.shuffle import epoch_of, permutation

PACKING, ROWS = 0, 1  # random streams


@dataclass(frozen=True)
class Example:
    """Tokens to read, and for each the token to predict after it, or IGNORE."""

    tokens: NDArray[np.int64]
    targets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class PackedRows:
    """Rows of several examples, padded on the right."""

    tokens: NDArray[np.int64]  # (B, T)
    targets: NDArray[np.int64]  # (B, T), IGNORE = none
    attention_mask: NDArray[np.bool_]  # (B, T), True = a real token
    starts: NDArray[np.int64]  # (B, T) where the example of each token begins in its row


def pack(lengths: Sequence[int], length: int, seed: int) -> list[list[int]]:
    """Examples in rows of at most `length` tokens: in random order, each into the first that fits.

    Rows with less room than the shortest example are closed, so that a search stays short.
    """
    rows: list[list[int]] = []
    open_rows: list[tuple[int, int]] = []  # (row, tokens left)
    shortest = min(lengths, default=0)
    for example in permutation(len(lengths), seed, 0, PACKING).tolist():
        needed = lengths[example]
        for place, (row, left) in enumerate(open_rows):
            if needed <= left:
                rows[row].append(example)
                open_rows[place] = (row, left - needed)
                if left - needed < shortest:
                    del open_rows[place]
                break
        else:
            rows.append([example])
            if length - needed >= shortest:
                open_rows.append((len(rows) - 1, length - needed))
    return rows


def pad_packed(rows: Sequence[Sequence[Example]], length: int, padding: int) -> PackedRows:
    """Rows of examples as arrays."""
    width = batch_width(max(sum(map(len, row)) for row in rows), length)
    shape = (len(rows), width)
    tokens = np.full(shape, padding, dtype=np.int64)
    targets = np.full(shape, IGNORE, dtype=np.int64)
    attention_mask = np.zeros(shape, dtype=np.bool_)
    starts = np.zeros(shape, dtype=np.int64)
    for place, row in enumerate(rows):
        begin = 0
        for example in row:
            end = begin + len(example)
            tokens[place, begin:end] = example.tokens
            targets[place, begin:end] = example.targets
            attention_mask[place, begin:end] = True
            starts[place, begin:end] = begin
            begin = end
        starts[place, begin:] = begin  # padding is a text of its own
    return PackedRows(tokens, targets, attention_mask, starts)


class PackedBatches:
    """Every row once per epoch, in random order; a batch is a function of (seed, step)."""

    def __init__(
        self, examples: Sequence[Example], batch: int, seed: int, length: int, padding: int
    ) -> None:
        self.examples = examples
        self.size = batch
        self.seed = seed
        self.length = length
        self.padding = padding
        self.rows = pack([len(each) for each in examples], length, seed)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.rows) // self.size)

    def batch(self, step: int) -> PackedRows:
        chosen = [[self.examples[each] for each in self.rows[row]] for row in self._rows(step)]
        return pad_packed(chosen, self.length, self.padding)

    def sample_ids(self, step: int) -> NDArray[np.int64]:
        """Which examples are in the batch of this step."""
        return np.array([each for row in self._rows(step) for each in self.rows[row]])

    def _rows(self, step: int) -> list[int]:
        epoch, index = epoch_of(step, self.steps_per_epoch)
        order = permutation(len(self.rows), self.seed, epoch, ROWS)
        chosen: list[int] = order[index * self.size : (index + 1) * self.size].tolist()
        return chosen


def evaluation_examples(
    examples: Sequence[Example], batch: int, length: int, padding: int
) -> Iterator[PackedRows]:
    """Every example once, one in a row."""
    for first in range(0, len(examples), batch):
        yield pad_packed([[each] for each in examples[first : first + batch]], length, padding)


def identity(examples: Sequence[Example]) -> str:
    """The hash of all tokens and targets."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(len(example).to_bytes(8, "little"))
        digest.update(example.tokens.astype("<i8").tobytes())
        digest.update(example.targets.astype("<i8").tobytes())
    return digest.hexdigest()
