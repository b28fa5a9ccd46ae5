"""Which tokens a prediction may use: sliding windows, or segments with a memory.

A text is cut into S streams that are coded side by side, as the rows of a batch. `predictor` gives
the logits of one more token of each stream at a time, as a decoder needs them; `windows` gives the
same predictions as batches of whole windows, as `clearformer evaluate` computes them. Both see the
same tokens.

Axes: S streams, L tokens of a stream, T tokens of a window, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple
from typing import Protocol as Interface

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from clearformer.config import ModelConfig
from clearformer.core.cache import Cache
from clearformer.core.heads import IGNORE, at_least_float32
from clearformer.core.model import Batch
from clearformer.generate.language_model import LanguageModel
from clearformer.inference.caches import KVMemory
from clearformer.inference.decoder import Decoder
from clearformer.inference.entropy_coder import Ids, Predictor

BitsSoFar = Callable[[int, float], None]  # tokens, and the bits of all of them
READ_AT_ONCE = 1024  # tokens of all streams: more would take more memory and leave the CPU's caches


class Learner(Interface):
    """Trains a model on a finished window."""

    def learn(self, tokens: Ids, targets: Ids) -> None: ...


class Mix(Interface):
    """Changes the logits (S, V) after tokens (S,)."""

    def __call__(self, tokens: Ids, logits: Tensor) -> Tensor: ...


class Window(NamedTuple):
    """Positions that are read together; what follows those from `scored` on is scored."""

    start: int
    stop: int
    scored: int
    full: bool  # whether a model that learns online learns from it


@dataclass(frozen=True)
class Windows:
    """Windows of `context` tokens, `stride` apart.

    When a window is full, its last `context - stride` tokens are read again as the beginning of
    the next.
    """

    context: int
    stride: int

    @property
    def longest(self) -> int:
        """The largest number of tokens in a cache."""
        return self.context

    def predictor(self, model: LanguageModel, streams: int, learner: Learner | None) -> Predictor:
        return _WindowPredictor(model, self, streams, learner)

    def reread(self, model: LanguageModel, tokens: Ids) -> Tensor | None:
        """Logits (S, V) after the beginning of the window that follows these tokens (S, context).

        None if a protocol reads no token twice.
        """
        beginning = tokens[:, self.stride - 1 :]  # and one new token
        return _decoder(model, len(tokens)).prefill(beginning.tolist(), self.stride - 1)

    def windows(self, length: int) -> Iterator[Window]:
        """The windows of streams with `length` tokens."""
        last = length - 1
        for start in range(0, max(1, last - self.context + self.stride), self.stride):
            stop = min(start + self.context, last)
            seen = self.context - self.stride if start else 0
            yield Window(start, stop, start + seen, stop - start == self.context)

    def caches(self, config: ModelConfig) -> list[Cache] | None:
        return None


class _WindowPredictor:
    def __init__(
        self, model: LanguageModel, protocol: Windows, streams: int, learner: Learner | None
    ) -> None:
        self.protocol, self.learner = protocol, learner
        self.decoder = _decoder(model, streams)
        self.window = np.zeros((streams, protocol.context), dtype=np.int64)
        self.length = 0

    def read(self, tokens: Ids) -> Tensor:
        context, stride = self.protocol.context, self.protocol.stride
        full = self.length == context
        if full:
            if self.learner is not None:
                targets = np.concatenate((self.window[:, 1:], tokens[:, None]), axis=1)
                self.learner.learn(self.window, targets)
            self.window[:, : context - stride] = self.window[:, stride:].copy()
            self.length = context - stride
        self.window[:, self.length] = tokens
        self.length += 1
        if full or self.length == 1:
            return self.decoder.prefill(
                self.window[:, : self.length].tolist(), context - self.length
            )
        return self.decoder.step(tokens.tolist())


def _decoder(model: LanguageModel, streams: int) -> Decoder:
    """A decoder that reads the beginnings of windows in chunks."""
    return model.decoder(chunk=max(1, READ_AT_ONCE // streams))


@dataclass(frozen=True)
class Segments:
    """Segments of `segment` tokens, each with a memory of the last `memory` before it."""

    segment: int
    memory: int

    @property
    def longest(self) -> int:
        return self.segment + self.memory

    def predictor(self, model: LanguageModel, streams: int, learner: Learner | None) -> Predictor:
        return _SegmentPredictor(model, self, streams, learner)

    def reread(self, model: LanguageModel, tokens: Ids) -> Tensor | None:
        return None

    def windows(self, length: int) -> Iterator[Window]:
        last = length - 1
        for start in range(0, last, self.segment):
            stop = min(start + self.segment, last)
            yield Window(start, stop, start, stop - start == self.segment)

    def caches(self, config: ModelConfig) -> list[Cache] | None:
        return [KVMemory(self.memory) for _ in range(config.layers)]


class _SegmentPredictor:
    def __init__(
        self, model: LanguageModel, protocol: Segments, streams: int, learner: Learner | None
    ) -> None:
        self.model, self.protocol, self.learner = model.module, protocol, learner
        self.caches = [KVMemory(protocol.memory) for _ in range(model.config.layers)]
        self.tokens = np.zeros((streams, protocol.segment), dtype=np.int64)
        self.length = 0

    def read(self, tokens: Ids) -> Tensor:
        if self.length == self.protocol.segment:
            if self.learner is not None:
                targets = np.concatenate((self.tokens[:, 1:], tokens[:, None]), axis=1)
                self.learner.learn(self.tokens, targets)
            self.length = 0
        self.tokens[:, self.length] = tokens
        self.length += 1
        # Within a segment every token sees all before it; only then the oldest are forgotten.
        last = self.length == self.protocol.segment
        for cache in self.caches:
            cache.capacity = self.protocol.memory + (0 if last else self.length)
        with torch.inference_mode():
            new = torch.from_numpy(tokens)[:, None]
            hidden = self.model.hidden(new, caches=self.caches)
            for cache in self.caches:
                cache.advance()
            return at_least_float32(self.model.head(hidden[:, 0]))


Protocol = Windows | Segments


def protocol_for(
    config: ModelConfig, context: int | None = None, stride: int | None = None
) -> Protocol:
    """The protocol of `clearformer evaluate` for a model, with the same defaults."""
    length = config.length if context is None else context
    for name, value in (("context", length), ("stride", stride)):
        if value is not None and value < 1:
            raise ValueError(f"`{name}` is {value}, but it must be at least 1")
    if config.memory is not None:
        if stride is not None:
            raise ValueError(
                "`stride` is for windows, but this model reads consecutive segments: leave it out"
            )
        return Segments(length, config.memory)
    limit = config.position.max_length(config.length)
    if limit is not None and length > limit:
        raise ValueError(
            f"`context` is {length}, but {config.name} has {limit} learned positions: choose at "
            f"most that many"
        )
    step = max(1, length // 2) if stride is None else stride
    if step > length:
        raise ValueError(f"`stride` is {step}, but it must be at most the context, {length}")
    return Windows(length, step)


def to_json(protocol: Protocol) -> dict[str, int]:
    return asdict(protocol)


def from_json(found: Mapping[str, int]) -> Protocol:
    """The protocol in a header; ValueError if there is no such one."""
    for kind in (Windows, Segments):
        if set(found) == set(kind.__dataclass_fields__):
            protocol = kind(**found)
            length, step = found.values()
            valid = length >= 1 and (step >= 0 if kind is Segments else 1 <= step <= length)
            if valid:
                return protocol
    raise ValueError(f"the header has an unknown protocol: {dict(found)!r:.100}")


def claim(
    model: LanguageModel,
    protocol: Protocol,
    streams: Ids,
    counts: NDArray[np.int64],
    learner: Learner | None = None,
    mixture: Mix | None = None,
    progress: BitsSoFar | None = None,
) -> float:
    """Bits of all tokens but the first of each stream, by the loss of the model itself.

    `streams` is (S, L); of stream i the first `counts[i]` tokens are real. Whole windows are
    computed at once, so that a model that looks ahead can do so.
    """
    total = 0.0
    caches = protocol.caches(model.config)
    for window in protocol.windows(streams.shape[1]):
        tokens = streams[:, window.start : window.stop]
        following = streams[:, window.start + 1 : window.stop + 1]
        places = np.arange(window.start, window.stop)
        scored = (places >= window.scored) & (places + 1 < counts[:, None])  # (S, T)
        targets = np.where(scored, following, IGNORE)
        with torch.inference_mode():
            batch = Batch(torch.from_numpy(tokens.copy()), torch.from_numpy(targets))
            if mixture is None:
                sums, _ = model.module.loss(batch, caches)
            else:
                skipped = window.scored - window.start
                sums = _mixed_loss(model, batch, caches, skipped, mixture)
            for cache in caches or ():
                cache.advance()
        total += float(sums.double().sum()) / math.log(2)
        if progress is not None:
            progress(min(streams.size, len(streams) * window.stop), total)
        if learner is not None and window.full:
            learner.learn(tokens, following)
    return total


def _mixed_loss(
    model: LanguageModel, batch: Batch, caches: list[Cache] | None, skipped: int, mix: Mix
) -> Tensor:
    """The loss (S,) of a window, whose logits after the first `skipped` ones are mixed."""
    hidden, targets = model.module.hidden(batch.tokens, caches=caches), batch.targets
    assert isinstance(targets, Tensor)  # of one objective
    total = torch.zeros(len(hidden), dtype=torch.float64)
    for place in range(skipped, hidden.shape[1]):
        logits = at_least_float32(model.module.head(hidden[:, place]))
        mixed = mix(batch.tokens[:, place].numpy(), logits)
        total += cross_entropy(mixed, targets[:, place], ignore_index=IGNORE, reduction="none")
    return total


def cut(tokens: NDArray[np.generic], streams: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and number of tokens of each stream, (S,) each; the first ones may be longer by one."""
    counts = np.full(streams, len(tokens) // streams, dtype=np.int64)
    counts[: len(tokens) % streams] += 1
    return np.concatenate(([0], counts.cumsum()[:-1])), counts
