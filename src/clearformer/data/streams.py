"""Batches from one long stream of tokens, as a pure function of (seed, step).

Axes: B batch, T tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from clearformer.data.shuffle import draws, epoch_of, permutation
from clearformer.data.tokens import Tokens

IGNORE = -100  # the target of a place that has none, as in core.heads
ORDER, OFFSET = 0, 1  # random streams


@dataclass(frozen=True)
class StreamBatch:
    """Tokens and, for each, the one that follows it."""

    tokens: NDArray[np.int64]  # (B, T)
    targets: NDArray[np.int64]  # (B, T)
    starts: NDArray[np.int64]  # (B,) where each row begins in the stream


def _require_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"the {name} is {value}, but it must be at least 1")


class StreamBatches:
    """Windows of `length` tokens, each once per epoch, in a random order.

    Every epoch splits the stream at a random offset, so that windows do not always begin at the
    same places; windows never overlap. Every batch is full: one may end an epoch and begin
    the next, so sample number `step * batch + row` alone says where it is.
    """

    def __init__(self, tokens: Tokens, length: int, batch: int, seed: int) -> None:
        _require_positive(length=length, batch=batch)
        if len(tokens) <= length:
            raise ValueError(
                f"the text has {len(tokens):,} tokens, but a context of {length} needs "
                f"{length + 1:,}: give a longer text or a shorter context"
            )
        self.tokens = tokens
        self.length = length
        self.size = batch
        self.seed = seed
        # One window less than fit, so that any offset below `length` leaves them all whole.
        self.windows = max(1, len(tokens) // length - 1)
        draws(0, seed, 0)  # refuse a bad seed now
        # A batch reaches over two epochs at most, unless there are very few windows.
        self._epoch = lru_cache(maxsize=2)(self._cut)

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every window has been seen; `windows / batch` is the exact number."""
        return -(-self.windows // self.size)

    def sample_ids(self, step: int) -> NDArray[np.int64]:
        """Where each row of the batch begins in the stream: (B,)."""
        if step < 0:
            raise ValueError(f"the step is {step}, but steps are counted from 0")
        numbers = np.arange(step * self.size, (step + 1) * self.size)
        epochs, places = np.divmod(numbers, self.windows)
        starts = np.empty(self.size, dtype=np.int64)
        for epoch in np.unique(epochs):
            rows = epochs == epoch
            starts[rows] = self._epoch(int(epoch))[places[rows]]
        return starts

    def batch(self, step: int) -> StreamBatch:
        starts = self.sample_ids(step)
        return _windows(self.tokens, starts, self.length)

    def _cut(self, epoch: int) -> NDArray[np.int64]:
        """The beginnings of this epoch's windows, in the order in which they come."""
        slack = len(self.tokens) - 1 - self.windows * self.length
        span = min(slack, self.length - 1) + 1
        offset = int(draws(1, self.seed, epoch, OFFSET)[0] % np.uint64(span))
        return offset + self.length * permutation(self.windows, self.seed, epoch, ORDER)


class SegmentBatches:
    """Consecutive segments of `length` tokens: row i of a batch continues row i of the last.

    The text is split into as many streams as a batch has rows, and each row reads its stream from
    beginning to end in every epoch. An epoch begins at a random offset, so that segments do not
    always begin at the same places; the memory ends with the epoch.
    """

    def __init__(self, tokens: Tokens, length: int, batch: int, seed: int) -> None:
        _require_positive(length=length, batch=batch)
        if len(tokens) <= length * batch:
            raise ValueError(
                f"the text has {len(tokens):,} tokens, but {batch} streams of segments of {length} "
                f"need {length * batch + 1:,}: give a longer text, a shorter segment (--length) or "
                f"a smaller --batch-size"
            )
        self.tokens = tokens
        self.length = length
        self.size = batch
        self.seed = seed
        self.stretch = (len(tokens) - 1) // batch  # tokens that a row reads in an epoch
        # One segment less than fit, so that an offset leaves them all whole, if there are two.
        self.steps_per_epoch = max(1, self.stretch // length - 1)
        draws(0, seed, 0)  # refuse a bad seed now

    def fresh(self, step: int) -> bool:
        """Whether the rows of this step continue nothing."""
        return step % self.steps_per_epoch == 0

    def sample_ids(self, step: int) -> NDArray[np.int64]:
        """Where each row of the batch begins in the text: (B,)."""
        epoch, place = epoch_of(step, self.steps_per_epoch)
        slack = self.stretch - self.steps_per_epoch * self.length
        offset = int(draws(1, self.seed, epoch, OFFSET)[0] % np.uint64(slack + 1))
        return offset + place * self.length + self.stretch * np.arange(self.size)

    def batch(self, step: int) -> StreamBatch:
        return _windows(self.tokens, self.sample_ids(step), self.length)


def evaluation_segments(
    tokens: Tokens, length: int, streams: int, before: int, ignore: int = IGNORE
) -> Iterator[StreamBatch]:
    """The whole text in `streams` rows that go on from batch to batch, each token scored once.

    A row first reads up to `before` tokens that come before its stretch, without scoring them,
    so that it begins with a memory. Positions that are not scored are `ignore`.
    """
    if len(tokens) < 2:
        raise ValueError(f"there are {len(tokens)} tokens, but evaluation needs at least 2")
    count = len(tokens) - 1  # targets
    streams = max(1, min(streams, count // max(1, length)))
    bounds = np.linspace(0, count, streams + 1).round().astype(np.int64)
    first = np.maximum(bounds[:-1] - before, 0)  # (B,)
    longest = int((bounds[1:] - first).max())
    for start in range(0, longest, length):
        stop = min(start + length, longest)
        place = first[:, None] + np.arange(start, stop)  # (B, T)
        scored = (place >= bounds[:-1, None]) & (place < bounds[1:, None])
        inside = np.minimum(place, count - 1)  # past the end: read something, score nothing
        rows = np.stack([_gather(tokens, row) for row in inside])
        targets = np.stack([_gather(tokens, row + 1) for row in inside])
        yield StreamBatch(rows, np.where(scored, targets, ignore), first + start)


def _gather(tokens: Tokens, places: NDArray[np.int64]) -> NDArray[np.int64]:
    first = int(places[0])
    return tokens.read(first, int(places[-1]) + 1)[places - first]


def evaluation_windows(
    tokens: Tokens, context: int, stride: int, batch: int, ignore: int = IGNORE
) -> Iterator[StreamBatch]:
    """The whole stream in order, every token after the first scored exactly once.

    Windows of `context` tokens begin `stride` apart, and each scores only what those before it
    have not, so that all but the first tokens are predicted from at least context - stride
    others. The last window is moved back to be full. Positions that are not scored are `ignore`.
    """
    if len(tokens) < 2:
        raise ValueError(f"there are {len(tokens)} tokens, but evaluation needs at least 2")
    if not 1 <= stride <= context:
        raise ValueError(
            f"the stride is {stride}, but it must be from 1 to the context of {context}"
        )
    length = min(context, len(tokens) - 1)
    last = len(tokens) - 1 - length
    starts = np.array([*range(0, last, stride), last], dtype=np.int64)
    scored = np.concatenate(([0], starts[:-1] + length))  # targets before these are done
    for first in range(0, len(starts), batch):
        rows = slice(first, first + batch)
        windows = _windows(tokens, starts[rows], length)
        place = starts[rows, None] + np.arange(length)  # (B, T)
        targets = np.where(place < scored[rows, None], ignore, windows.targets)
        yield StreamBatch(windows.tokens, targets, windows.starts)


def _windows(tokens: Tokens, starts: NDArray[np.int64], length: int) -> StreamBatch:
    rows = [tokens.read(start, start + length + 1) for start in starts.tolist()]
    table = np.stack(rows)  # (B, T + 1)
    return StreamBatch(table[:, :-1], table[:, 1:], starts)
