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

IGNORE = -100  # the label of a row that has none, as in core.heads
POOL = 64  # batches that are sorted by length together
WIDTHS = 8  # a batch is a multiple of this wide, or as wide as a row may be; short ones are exact
SHORT = 32
ROWS, BATCHES = 0, 1  # random streams

Cut = Literal["head", "tail", "ends"]  # what is kept of a text that is too long


def label_names(table: Table) -> tuple[str, ...]:
    """The labels of a training table in order: numbers by value, names as in a dictionary."""
    found = set(table.labels or ())
    if len(found) < 2:
        only = f"only {found.pop()!r}" if found else "none"
        raise ValueError(
            f"{table.name}: a classifier needs at least two labels, but there is {only}"
        )
    if all(name.removeprefix("-").isdecimal() for name in found):
        return tuple(sorted(found, key=lambda name: (int(name), name)))
    return tuple(sorted(found))


def label_ids(table: Table, names: Sequence[str]) -> NDArray[np.int64]:
    """The number of each row's label; IGNORE in a table without labels."""
    if table.labels is None:
        return np.full(len(table), IGNORE, dtype=np.int64)
    numbers = {name: i for i, name in enumerate(names)}
    unseen = sorted(set(table.labels) - set(names))
    if unseen:
        count = sum(label not in numbers for label in table.labels)
        raise ValueError(
            f"{table.name}: {count:,} rows have labels that the training had not "
            f"({', '.join(map(repr, unseen[:10]))}{', ...' if len(unseen) > 10 else ''}), "
            f"but there must be only {', '.join(map(repr, names))}: leave these rows out, "
            f"in evaluate with --unknown-label skip"
        )
    return np.array([numbers[label] for label in table.labels], dtype=np.int64)


@dataclass(frozen=True)
class Rows:
    """Encoded texts one after the other in `flat`, row i from starts[i] to starts[i + 1]."""

    flat: NDArray[np.int32]
    starts: NDArray[np.int64]
    labels: NDArray[np.int64]  # IGNORE = none
    names: tuple[str, ...]  # of the labels
    prefix_ids: tuple[int, ...] = ()  # ids that open every row, however it is cut
    suffix_ids: tuple[int, ...] = ()  # and those that close it
    padding: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ids of each row, without those that open and close it."""
        return np.diff(self.starts)

    def sha256(self) -> str:
        """Identity: the ids, where rows begin, and their labels."""
        digest = hashlib.sha256(
            repr((self.names, self.prefix_ids, self.suffix_ids)).encode("utf-8")
        )
        digest.update(self.flat.astype("<i4").tobytes())
        digest.update(self.starts.astype("<i8").tobytes())
        digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()


def encode_rows(table: Table, tokenizer: Tokenizer, names: Sequence[str]) -> Rows:
    """The rows of a table as ids; `names` are the labels of the training."""
    labels = label_ids(table, names)
    if not len(table):
        raise ValueError(f"{table.name}: there are no rows")
    encoded: list[NDArray[np.int32]] = []
    for first in range(0, len(table), 1000):  # some at a time: the library uses all cores
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
    labels: NDArray[np.int64],
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
    labels: NDArray[np.int64]  # (B,)
    ids: NDArray[np.int64]  # (B,) which rows these are


class RowBatches:
    """Every row once per epoch, rows of similar length together, so that padding is little.

    Shuffle all rows; cut into pools; sort each pool by length; cut into batches; shuffle the
    batches. Sorting everything would always put the same rows together. The last batch of a
    pool may be smaller, where `batch` does not divide the rows.
    """

    def __init__(self, rows: Rows, batch: int, seed: int, length: int, cut: Cut = "head") -> None:
        if batch < 1:
            raise ValueError(f"the batch is {batch}, but it must be at least 1")
        _require_room(rows, length, cut)
        draws(0, seed, 0)  # refuse a bad seed now
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
        """How many rows are longer than `length` and lose a part."""
        return count_truncated(self.rows, self.length)

    def sample_ids(self, step: int) -> NDArray[np.int64]:
        """Which rows are in the batch of this step: (B,)."""
        epoch, place = epoch_of(step, self.steps_per_epoch)
        return self._plan(epoch)[place]

    def batch(self, step: int) -> RowBatch:
        return pad(self.rows, self.sample_ids(step), self.length, self.cut)


def similar_lengths(
    lengths: NDArray[np.int64], batch: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """The numbers of all rows in batches of similar length, in the order of this epoch."""
    rows = permutation(len(lengths), seed, epoch, ROWS)
    pool = POOL * batch
    batches = []
    for first in range(0, len(rows), pool):
        each = rows[first : first + pool]
        each = each[np.argsort(lengths[each], kind="stable")]
        batches += [each[i : i + batch] for i in range(0, len(each), batch)]
    return [batches[i] for i in permutation(len(batches), seed, epoch, BATCHES)]


def evaluation_rows(rows: Rows, batch: int, length: int, cut: Cut = "head") -> Iterator[RowBatch]:
    """Every row once, sorted by length; `ids` say which is which."""
    _require_room(rows, length, cut)
    order = np.argsort(_cut_lengths(rows, length), kind="stable")
    for first in range(0, len(order), batch):
        yield pad(rows, order[first : first + batch], length, cut)


def pad(rows: Rows, ids: NDArray[np.int64], length: int, cut: Cut) -> RowBatch:
    """These rows as one batch, about as wide as the longest of them."""
    found = [_row(rows, i, length, cut) for i in ids.tolist()]
    longest = max(1, *(len(row) for row in found))  # a batch of empty texts is a batch too
    width = batch_width(longest, length)
    tokens = np.full((len(found), width), rows.padding, dtype=np.int64)  # (B, T)
    attention_mask = np.zeros((len(found), width), dtype=np.bool_)  # (B, T)
    for place, row in enumerate(found):
        tokens[place, : len(row)] = row
        attention_mask[place, : len(row)] = True
    return RowBatch(tokens, attention_mask, rows.labels[ids], ids)


def batch_width(longest: int, length: int) -> int:
    """Of a batch whose longest row is so long: one of few, since for each of them half precision
    keeps kernels of its own, megabytes."""
    return longest if longest <= SHORT else min(length, -(-longest // WIDTHS) * WIDTHS)


def count_truncated(rows: Rows, length: int) -> int:
    """How many rows have more than `length` tokens, with those that open and close them."""
    return int((rows.lengths > length - len(rows.prefix_ids) - len(rows.suffix_ids)).sum())


def _row(rows: Rows, row: int, length: int, cut: Cut) -> NDArray[np.int64]:
    """One row, cut to `length` and with its opening and closing ids."""
    room = length - len(rows.prefix_ids) - len(rows.suffix_ids)
    ids = rows.flat[rows.starts[row] : rows.starts[row + 1]]
    if len(ids) > room:
        head = {"head": room, "tail": 0, "ends": room - room // 2}[cut]
        ids = np.concatenate((ids[:head], ids[len(ids) - (room - head) :]))
    return np.concatenate((rows.prefix_ids, ids, rows.suffix_ids)).astype(np.int64)


def _cut_lengths(rows: Rows, length: int) -> NDArray[np.int64]:
    return np.minimum(rows.lengths, length - len(rows.prefix_ids) - len(rows.suffix_ids))


def _require_room(rows: Rows, length: int, cut: str) -> None:
    least = len(rows.prefix_ids) + len(rows.suffix_ids) + 1
    if length < least:
        raise ValueError(f"the length is {length}, but a row needs at least {least}")
    if cut not in ("head", "tail", "ends"):
        raise ValueError(f"the cut is {cut!r}, but it must be 'head', 'tail' or 'ends'")
