"""Encoded source-target pairs, in batches of similar length.

A source ends with `end`. A target begins with `start` as input of the decoder, and ends with `end`
as its expected output, so that the model learns where to stop.

Axes: B batch, S source tokens, T target tokens.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearformer.data.rows import IGNORE
from clearformer.data.shuffle import draws, epoch_of, permutation
from clearformer.data.tables import Pairs
from clearformer.text.tokenizer import Ids, Tokenizer

ROWS, BATCHES = 0, 1  # random streams
BUCKET = 2  # width of a bucket of lengths
MAX_DISTINCTIVE = 100  # ids that distinguish one side from the other


@dataclass(frozen=True)
class EncodedPairs:
    """Ids of both sides, without marks."""

    sources: Sequence[Ids]
    targets: Sequence[Ids]
    start: int
    end: int

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of the longer side of each pair, its mark included."""
        sides = zip(self.sources, self.targets, strict=True)
        return np.array([1 + max(len(one), len(other)) for one, other in sides], dtype=np.int64)

    def select(self, rows: Sequence[int]) -> "EncodedPairs":
        """Only these pairs, in this order."""
        sources = [self.sources[row] for row in rows]
        return EncodedPairs(sources, [self.targets[row] for row in rows], self.start, self.end)

    def sha256(self) -> str:
        """Identity: the ids of each side of each pair."""
        digest = hashlib.sha256(repr((self.start, self.end, len(self))).encode())
        for side in (self.sources, self.targets):
            digest.update(np.array([len(ids) for ids in side], dtype="<i8").tobytes())
            digest.update(b"".join(ids.astype("<i4").tobytes() for ids in side))
        return digest.hexdigest()


def encode_pairs(pairs: Pairs, tokenizer: Tokenizer, start: int, end: int) -> EncodedPairs:
    """Encode both sides with one tokenizer."""
    return EncodedPairs(
        tokenizer.encode_many(pairs.sources), tokenizer.encode_targets(pairs.targets), start, end
    )


@dataclass(frozen=True)
class PaddedPairs:
    """Pairs padded on the right, each side to its longest sequence."""

    source: NDArray[np.int64]  # (B, S)
    target: NDArray[np.int64]  # (B, T), decoder input
    targets: NDArray[np.int64]  # (B, T), expected output; IGNORE = padding
    source_attention_mask: NDArray[np.bool_]  # (B, S), True = a real token
    target_attention_mask: NDArray[np.bool_]  # (B, T)
    ids: NDArray[np.int64]  # (B,) which pairs these are


class PairBatches:
    """Every pair once per epoch, batched by similar length to reduce padding.

    A batch has at most `batch` pairs and `tokens` tokens on either side, with padding. Pairs are
    shuffled and then sorted by the length of their longer side, so that the sizes of the batches
    are the same in every epoch, but not their pairs.
    """

    def __init__(self, pairs: EncodedPairs, batch: int, tokens: int | None, seed: int) -> None:
        draws(0, seed, 0)  # checks the seed
        self.pairs = pairs
        self.seed = seed
        self._buckets = -(-pairs.lengths // BUCKET)
        self._ends = _batch_ends(np.sort(self._buckets) * BUCKET, batch, tokens)
        self._epoch = -1

    @property
    def steps_per_epoch(self) -> int:
        return len(self._ends)

    def sample_ids(self, step: int) -> NDArray[np.int64]:
        """Which pairs are in the batch of this step: (B,)."""
        epoch, index = epoch_of(step, self.steps_per_epoch)
        if epoch != self._epoch:  # cached: the order depends on the epoch alone
            self._epoch, self._order = epoch, self._batches(epoch)
        return self._order[index]

    def batch(self, step: int) -> PaddedPairs:
        return pad_pairs(self.pairs, self.sample_ids(step))

    def _batches(self, epoch: int) -> list[NDArray[np.int64]]:
        rows = permutation(len(self.pairs), self.seed, epoch, ROWS)
        rows = rows[np.argsort(self._buckets[rows], kind="stable")]
        batches = np.split(rows, self._ends[:-1])
        return [batches[i] for i in permutation(len(batches), self.seed, epoch, BATCHES)]


def _batch_ends(lengths: NDArray[np.int64], batch: int, tokens: int | None) -> list[int]:
    """The ends of batches of rows with these ascending lengths."""
    ends, first = [], 0
    for index, length in enumerate(lengths.tolist()):
        size = index + 1 - first
        too_many = tokens is not None and size * length > tokens
        if index > first and (size > batch or too_many):
            ends.append(index)
            first = index
    return [*ends, len(lengths)]


def evaluation_pairs(pairs: EncodedPairs, batch: int) -> Iterator[PaddedPairs]:
    """Every pair once, sorted by length; `ids` are their indices."""
    order = np.argsort(pairs.lengths, kind="stable")
    for first in range(0, len(order), batch):
        yield pad_pairs(pairs, order[first : first + batch])


def pad_pairs(pairs: EncodedPairs, rows: NDArray[np.int64]) -> PaddedPairs:
    """These pairs as one batch."""
    chosen = rows.tolist()
    source, source_mask = pad([[*pairs.sources[row], pairs.end] for row in chosen])
    target, target_mask = pad([[pairs.start, *pairs.targets[row]] for row in chosen])
    targets, _ = pad([[*pairs.targets[row], pairs.end] for row in chosen], IGNORE)
    return PaddedPairs(source, target, targets, source_mask, target_mask, rows)


def pad(
    rows: Sequence[Sequence[int]], filling: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows padded on the right, and the attention mask: each (B, T)."""
    longest = max(len(row) for row in rows)
    padded = np.full((len(rows), longest), filling, dtype=np.int64)  # (B, T)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    lengths = np.array([len(row) for row in rows])
    return padded, np.arange(longest) < lengths[:, None]


def distinctive_tokens(pairs: EncodedPairs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Common ids of each side that are rare on the other, the most common first."""
    sides = [Counter(np.concatenate(side).tolist()) for side in (pairs.sources, pairs.targets)]

    def distinctive(one: Counter[int], other: Counter[int]) -> tuple[int, ...]:
        ids = [each for each in one if one[each] > 20 * other[each]]
        return tuple(sorted(ids, key=lambda each: (-one[each], each))[:MAX_DISTINCTIVE])

    return distinctive(*sides), distinctive(*reversed(sides))
