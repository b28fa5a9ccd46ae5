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

IGNORE = -100  # the target of a position without one, as in core.heads
ORDER, OFFSET = 0, 1  # random streams


@dataclass(frozen=True)
class StreamBatch:
    """Tokens, and the next token of each as targets."""

    tokens: NDArray[np.int64]  # (B, T)
    targets: NDArray[np.int64]  # (B, T)
    starts: NDArray[np.int64]  # (B,) start of each row in the stream


def _require_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"the {name} is {value}, but it must be at least 1")


class StreamBatches:
    """Windows of `length` tokens, each once per epoch, in a random order.

    Every epoch splits the stream at a random offset, so that windows begin at other positions;
    windows never overlap. Every batch is full: it may contain the end of an epoch and the start of
    the next, so that a row is determined by its sample number, `step * batch + row`.
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
        # One window less than fit, so that all fit with any offset below `length`.
        self.windows = max(1, len(tokens) // length - 1)
        draws(0, seed, 0)  # checks the seed
        # A batch spans at most two epochs, unless there are very few windows.
        self._epoch = lru_cache(maxsize=2)(self._cut)

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every window has been seen; `windows / batch` is the exact number."""
        return -(-self.windows // self.size)

    def sample_ids(self, step: int) -> NDArray[np.int64]:
        """The start of each row of the batch in the stream: (B,)."""
        if step < 0:
            raise ValueError(f"the step is {step}, but steps are counted from 0")
        numbers = np.arange(step * self.size, (step + 1) * self.size)
        epochs, indices = np.divmod(numbers, self.windows)
        starts = np.empty(self.size, dtype=np.int64)
        for epoch in np.unique(epochs):
            rows = epochs == epoch
            starts[rows] = self._epoch(int(epoch))[indices[rows]]
        return starts

    def batch(self, step: int) -> StreamBatch:
        starts = self.sample_ids(step)
        return _windows(self.tokens, starts, self.length)

    def _cut(self, epoch: int) -> NDArray[np.int64]:
        """The starts of this epoch's windows, in order."""
        slack = len(self.tokens) - 1 - self.windows * self.length
        span = min(slack, self.length - 1) + 1
        offset = int(draws(1, self.seed, epoch, OFFSET)[0] % np.uint64(span))
        return offset + self.length * permutation(self.windows, self.seed, epoch, ORDER)


class SegmentBatches:
    """Consecutive segments of `length` tokens: row i of a batch continues row i of the last.

    The text is split into as many streams as a batch has rows, and each row reads its stream from
    beginning to end in every epoch. An epoch begins at a random offset, so that segments begin at
    other positions; the memory is cleared at the end of an epoch.
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
        self.stream_length = (len(tokens) - 1) // batch  # tokens that a row reads in an epoch
        # One segment less than fit, so that all fit with any offset.
        self.steps_per_epoch = max(1, self.stream_length // length - 1)
        draws(0, seed, 0)  # checks the seed

    def fresh(self, step: int) -> bool:
        """Whether the rows of this step start anew instead of continuing the last ones."""
        return step % self.steps_per_epoch == 0

    def sample_ids(self, step: int) -> NDArray[np.int64]:
        """The start of each row of the batch in the text: (B,)."""
        epoch, index = epoch_of(step, self.steps_per_epoch)
        slack = self.stream_length - self.steps_per_epoch * self.length
        offset = int(draws(1, self.seed, epoch, OFFSET)[0] % np.uint64(slack + 1))
        return offset + index * self.length + self.stream_length * np.arange(self.size)

    def batch(self, step: int) -> StreamBatch:
        return _windows(self.tokens, self.sample_ids(step), self.length)


def evaluation_segments(
    tokens: Tokens, length: int, streams: int, before: int, ignore: int = IGNORE
) -> Iterator[StreamBatch]:
    """The whole text in `streams` rows that continue from batch to batch, each token scored once.

    A row first reads up to `before` tokens before its stream to fill its memory, without scoring
    them. Targets that are not scored are `ignore`.
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
        positions = first[:, None] + np.arange(start, stop)  # (B, T)
        scored = (positions >= bounds[:-1, None]) & (positions < bounds[1:, None])
        inside = np.minimum(positions, count - 1)  # past the end: read any token, but score none
        rows = np.stack([_gather(tokens, row) for row in inside])
        targets = np.stack([_gather(tokens, row + 1) for row in inside])
        yield StreamBatch(rows, np.where(scored, targets, ignore), first + start)


def _gather(tokens: Tokens, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    first = int(positions[0])
    return tokens.read(first, int(positions[-1]) + 1)[positions - first]


def evaluation_windows(
    tokens: Tokens, context: int, stride: int, batch: int, ignore: int = IGNORE
) -> Iterator[StreamBatch]:
    """The whole stream in order, every token after the first scored exactly once.

    Windows of `context` tokens begin `stride` apart, and each scores only tokens that earlier
    windows have not, so that after the first window tokens are predicted from at least
    context - stride others. The last window is moved back to be full. Targets that are not scored
    are `ignore`.
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
    scored = np.concatenate(([0], starts[:-1] + length))  # targets before these are scored already
    for first in range(0, len(starts), batch):
        rows = slice(first, first + batch)
        windows = _windows(tokens, starts[rows], length)
        positions = starts[rows, None] + np.arange(length)  # (B, T)
        targets = np.where(positions < scored[rows, None], ignore, windows.targets)
        yield StreamBatch(windows.tokens, targets, windows.starts)


def _windows(tokens: Tokens, starts: NDArray[np.int64], length: int) -> StreamBatch:
    rows = [tokens.read(start, start + length + 1) for start in starts.tolist()]
    table = np.stack(rows)  # (B, T + 1)
    return StreamBatch(table[:, :-1], table[:, 1:], starts)
