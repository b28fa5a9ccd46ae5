"""Labelled texts of different lengths, and batches of them.

Axes: B batch, T tokens.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clearformer.data.shuffle import draws, epoch_of, permutation
from clearformer.data.tables import Table
from clearformer.text.tokenizer import Tokenizer

IGNORE = -100  # the label of a row without one, as in core.heads
POOL = 64  # batches that are sorted by length together
WIDTHS, SHORT = 8, 32  # widths above SHORT are rounded up to a multiple of WIDTHS
ROWS, BATCHES = 0, 1  # random streams

Cut = Literal["head", "tail", "ends"]  # part of a long text that is kept
Targets = NDArray[np.int64] | NDArray[np.float32]


def label_names(table: Table) -> tuple[str, ...]:
    """The sorted labels of a training table: numbers by value, names alphabetically."""
    labels = set(table.labels or ())
    if len(labels) < 2:
        only = f"only {labels.pop()!r}" if labels else "none"
        raise ValueError(
            f"{table.name}: a classifier needs at least two labels, but there is {only}"
        )
    if all(name.removeprefix("-").isdecimal() for name in labels):
        return tuple(sorted(labels, key=lambda name: (int(name), name)))
    return tuple(sorted(labels))


def label_ids(table: Table, names: Sequence[str]) -> NDArray[np.int64]:
    """The number of each row's label; IGNORE in a table without labels."""
    if table.labels is None:
        return np.full(len(table), IGNORE, dtype=np.int64)
    numbers = {name: i for i, name in enumerate(names)}
    unseen = sorted(set(table.labels) - set(names))
    if unseen:
        count = sum(label not in numbers for label in table.labels)
        raise ValueError(
            f"{table.name}: {count:,} rows have labels that are not in the training data "
            f"({', '.join(map(repr, unseen[:10]))}{', ...' if len(unseen) > 10 else ''}), "
            f"but the labels are {', '.join(map(repr, names))}: remove these rows, or evaluate "
            f"with --unknown-label skip"
        )
    return np.array([numbers[label] for label in table.labels], dtype=np.int64)


@dataclass(frozen=True)
class Rows:
    """Encoded texts, concatenated in `flat`; row i is from starts[i] to starts[i + 1]."""

    flat: NDArray[np.int32]
    starts: NDArray[np.int64]
    labels: Targets  # (rows,) classes, IGNORE = none; (rows, C) labels; or (rows,) numbers
    names: tuple[str, ...]  # of the labels
    prefix_ids: tuple[int, ...] = ()  # at the start of every row, also if it is truncated
    suffix_ids: tuple[int, ...] = ()  # at the end of every row
    padding: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ids of each row, without prefix and suffix."""
        return np.diff(self.starts)

    def sha256(self) -> str:
        """Identity: the ids, where rows begin, and their labels."""
        digest = hashlib.sha256(
            repr((self.names, self.prefix_ids, self.suffix_ids)).encode("utf-8")
        )
        digest.update(self.flat.astype("<i4").tobytes())
        digest.update(self.starts.astype("<i8").tobytes())
        kind = "<i8" if self.labels.dtype.kind == "i" else "<f4"
        digest.update(self.labels.astype(kind).tobytes())
        return digest.hexdigest()


def encode_rows(
    table: Table, tokenizer: Tokenizer, names: Sequence[str], targets: Targets | None = None
) -> Rows:
    """The rows of a table as ids; `names` are the labels of the training data, `targets` what is
    learned of each row if that is not the number of its label."""
    labels = label_ids(table, names) if targets is None else targets
    if not len(table):
        raise ValueError(f"{table.name}: there are no rows")
    encoded: list[NDArray[np.int32]] = []
    for first in range(0, len(table), 1000):  # encode_many uses all cores
        encoded += tokenizer.encode_many(table.texts[first : first + 1000])
    return _rows(encoded, labels, tokenizer, names)


def encode_texts(
    texts: Sequence[str | Sequence[int]], tokenizer: Tokenizer, names: Sequence[str] = ()
) -> Rows:
    """Texts without labels as rows; a text may be given by its ids, without special tokens."""
    strings = iter(tokenizer.encode_many([text for text in texts if isinstance(text, str)]))
    encoded = [
        next(strings) if isinstance(text, str) else np.array(text, dtype=np.int32) for text in texts
    ]
    return _rows(encoded, np.full(len(texts), IGNORE, dtype=np.int64), tokenizer, names)


def _rows(
    encoded: Sequence[NDArray[np.int32]],
    labels: Targets,
    tokenizer: Tokenizer,
    names: Sequence[str],
) -> Rows:
    starts = np.concatenate(([0], np.cumsum([len(ids) for ids in encoded], dtype=np.int64)))
    return Rows(
        flat=np.concatenate(encoded),
        starts=starts,
        labels=labels,
        names=tuple(names),
        prefix_ids=tokenizer.prefix_ids,
        suffix_ids=tokenizer.suffix_ids,
        padding=tokenizer.padding,
    )


@dataclass(frozen=True)
class RowBatch:
    """Rows padded on the right."""

    tokens: NDArray[np.int64]  # (B, T)
    attention_mask: NDArray[np.bool_]  # (B, T), True = a real token
    labels: Targets  # (B,) or (B, C)
    ids: NDArray[np.int64]  # (B,) which rows these are


class RowBatches:
    """Every row once per epoch, batched by similar length to reduce padding.

    Shuffle all rows; split them into pools; sort each pool by length; split it into batches;
    shuffle the batches. Sorting all rows would always batch the same rows together. The last batch
    of a pool may be smaller.
    """

    def __init__(self, rows: Rows, batch: int, seed: int, length: int, cut: Cut = "head") -> None:
        if batch < 1:
            raise ValueError(f"the batch is {batch}, but it must be at least 1")
        _require_length(rows, length, cut)
        draws(0, seed, 0)  # checks the seed
        self.rows = rows
        self.size = batch
        self.seed = seed
        self.length = length
        self.cut: Cut = cut
        lengths = _cut_lengths(rows, length)
        self._plan = lru_cache(maxsize=2)(
            lambda epoch: similar_lengths(lengths, batch, seed, epoch)
        )

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.rows) // self.size)

    @property
    def cut_rows(self) -> int:
        """The number of rows that are truncated to `length`."""
        return count_truncated(self.rows, self.length)

    def sample_ids(self, step: int) -> NDArray[np.int64]:
        """Which rows are in the batch of this step: (B,)."""
        epoch, index = epoch_of(step, self.steps_per_epoch)
        return self._plan(epoch)[index]

    def batch(self, step: int) -> RowBatch:
        return pad(self.rows, self.sample_ids(step), self.length, self.cut)


def similar_lengths(
    lengths: NDArray[np.int64], batch: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """Batches of row indices of similar length, in the order of this epoch."""
    rows = permutation(len(lengths), seed, epoch, ROWS)
    pool = POOL * batch
    batches = []
    for first in range(0, len(rows), pool):
        chunk = rows[first : first + pool]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        batches += [chunk[i : i + batch] for i in range(0, len(chunk), batch)]
    return [batches[i] for i in permutation(len(batches), seed, epoch, BATCHES)]


def evaluation_rows(rows: Rows, batch: int, length: int, cut: Cut = "head") -> Iterator[RowBatch]:
    """Every row once, sorted by length; `ids` are their indices."""
    _require_length(rows, length, cut)
    order = np.argsort(_cut_lengths(rows, length), kind="stable")
    for first in range(0, len(order), batch):
        yield pad(rows, order[first : first + batch], length, cut)


def pad(rows: Rows, ids: NDArray[np.int64], length: int, cut: Cut) -> RowBatch:
    """These rows as one batch, about as wide as its longest row."""
    sequences = [_row(rows, i, length, cut) for i in ids.tolist()]
    longest = max(1, *(len(row) for row in sequences))  # all texts may be empty
    width = batch_width(longest, length)
    tokens = np.full((len(sequences), width), rows.padding, dtype=np.int64)  # (B, T)
    for i, row in enumerate(sequences):
        tokens[i, : len(row)] = row
    lengths = np.array([[len(row)] for row in sequences])
    return RowBatch(tokens, np.arange(width) < lengths, rows.labels[ids], ids)


def batch_width(longest: int, length: int) -> int:
    """The width of a batch with a row of `longest` tokens.

    Widths are rounded up, since oneDNN caches kernels in half precision for each width.
    """
    return longest if longest <= SHORT else min(length, -(-longest // WIDTHS) * WIDTHS)


def count_truncated(rows: Rows, length: int) -> int:
    """The number of rows with more than `length` tokens, including prefix and suffix."""
    return int((rows.lengths > length - len(rows.prefix_ids) - len(rows.suffix_ids)).sum())


def truncated_share(rows: Rows, length: int) -> float:
    """The share of all tokens that truncation to `length` leaves out."""
    kept = int(_cut_lengths(rows, length).sum())
    return 1 - kept / max(int(rows.lengths.sum()), 1)


def _row(rows: Rows, row: int, length: int, cut: Cut) -> NDArray[np.int64]:
    """One row, truncated to `length`, with prefix and suffix."""
    max_tokens = length - len(rows.prefix_ids) - len(rows.suffix_ids)
    ids = rows.flat[rows.starts[row] : rows.starts[row + 1]]
    if len(ids) > max_tokens:
        head = {"head": max_tokens, "tail": 0, "ends": max_tokens - max_tokens // 2}[cut]
        ids = np.concatenate((ids[:head], ids[len(ids) - (max_tokens - head) :]))
    return np.concatenate((rows.prefix_ids, ids, rows.suffix_ids)).astype(np.int64)


def _cut_lengths(rows: Rows, length: int) -> NDArray[np.int64]:
    return np.minimum(rows.lengths, length - len(rows.prefix_ids) - len(rows.suffix_ids))


def _require_length(rows: Rows, length: int, cut: str) -> None:
    minimum = len(rows.prefix_ids) + len(rows.suffix_ids) + 1
    if length < minimum:
        raise ValueError(f"the length is {length}, but a row needs at least {minimum}")
    if cut not in ("head", "tail", "ends"):
        raise ValueError(f"the cut is {cut!r}, but it must be 'head', 'tail' or 'ends'")
