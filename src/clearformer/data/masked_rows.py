"""Batches for masked-token models: spans of sentences, alone or in pairs.

A document is split into spans of as many whole sentences as fit; a sentence longer than a row is
split itself, so nothing is lost. Each epoch takes every span once, rows of similar length together.
`SingleSpan` makes `[CLS] span [SEP]`; `SentencePairs` splits a span at a sentence end into
`[CLS] first [SEP] second [SEP]`, and half of the time the second comes from elsewhere. All of this
is a pure function of (seed, step).

Axes: B batch, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from clearformer.data.documents import Documents
from clearformer.data.masking import MaskingPolicy, TokenMasker
from clearformer.data.rows import similar_lengths
from clearformer.data.shuffle import draws, epoch_of
from clearformer.text.tokenizer import Tokenizer

CUT, TRUTH, ELSEWHERE = 5, 6, 7  # random streams, besides those of masking.py
IS_NEXT, NOT_NEXT = 0, 1  # labels of a pair, as in BERT

Parts = tuple[NDArray[np.int32], ...]  # the parts of a row, without special tokens


@dataclass(frozen=True)
class Spans:
    """Sentences that fit into a row; span i has those from first[i] to stop[i]."""

    flat: NDArray[np.int32]
    sentences: NDArray[np.int64]  # start of each in `flat`, and the end
    first: NDArray[np.int64]
    stop: NDArray[np.int64]
    document: NDArray[np.int64]  # index of each span's document
    documents: NDArray[np.int64]  # the first sentence of each document, and the end

    def __len__(self) -> int:
        return len(self.first)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.sentences[self.stop] - self.sentences[self.first]


def split_spans(source: Documents, max_tokens: int) -> Spans:
    """Split every document into as few spans of at most `max_tokens` as whole sentences allow."""
    sentences, documents = _fitting(source, max_tokens)
    first, stop, owner = [], [], []
    current, ends = documents[:-1], documents[1:]
    which = np.arange(len(ends))
    while len(which):  # one span of each document that is not yet at its end
        fits = np.searchsorted(sentences, sentences[current] + max_tokens, side="right") - 1
        reached = np.minimum(fits, ends[which])
        first.append(current)
        stop.append(reached)
        owner.append(which)
        left = reached < ends[which]
        current, which = reached[left], which[left]
    order = np.argsort(np.concatenate(first), kind="stable")
    begins, ends, owners = (np.concatenate(each)[order] for each in (first, stop, owner))
    return Spans(source.flat, sentences, begins, ends, owners, documents)


def _fitting(source: Documents, max_tokens: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts of sentences and documents, with sentences that are too long for a row split."""
    pieces = -(-np.diff(source.sentences) // max_tokens)
    before = np.concatenate(([0], np.cumsum(pieces)))  # pieces before each sentence
    inside = np.arange(before[-1]) - np.repeat(before[:-1], pieces)
    starts = np.repeat(source.sentences[:-1], pieces) + max_tokens * inside
    return np.append(starts, source.sentences[-1]), before[source.documents]


class Layout(Protocol):
    """How a row is built from a span."""

    marks: int  # special tokens in a row
    min_spans: int  # needed for training

    def parts(
        self, source: Spans, ids: NDArray[np.int64], seed: int, step: int
    ) -> tuple[list[Parts], NDArray[np.int64] | None]:
        """The parts of each row, and whether the second follows the first, if there are two."""


class SingleSpan:
    """A row is one span, for masked tokens alone."""

    marks = 2
    min_spans = 1

    def parts(
        self, source: Spans, ids: NDArray[np.int64], seed: int, step: int
    ) -> tuple[list[Parts], None]:
        bounds = zip(source.first[ids].tolist(), source.stop[ids].tolist(), strict=True)
        begin = source.sentences
        return [(source.flat[begin[first] : begin[stop]],) for first, stop in bounds], None


class SentencePairs:
    """A span in two parts; in half of the rows the second is replaced by one of equal length.

    The replacement comes from another document, or from another span if there is only one document.
    """

    marks = 3
    min_spans = 2

    def parts(
        self, source: Spans, ids: NDArray[np.int64], seed: int, step: int
    ) -> tuple[list[Parts], NDArray[np.int64]]:
        cuts, elsewhere = (draws(len(ids), seed, step, each) for each in (CUT, ELSEWHERE))
        labels = (draws(len(ids), seed, step, TRUTH) >> np.uint64(63)).astype(np.int64)
        rows: list[Parts] = []
        for i, cut, label, random in zip(
            ids.tolist(), cuts.tolist(), labels.tolist(), elsewhere.tolist(), strict=True
        ):
            start, stop = source.sentences[source.first[i]], source.sentences[source.stop[i]]
            middle = self._middle(source, i, cut)
            second = source.flat[middle:stop]
            if label == NOT_NEXT:
                second = self._elsewhere(source, i, random, len(second))
            rows.append((source.flat[start:middle], second))
        return rows, labels

    def _middle(self, source: Spans, i: int, chance: int) -> int:
        """Start of the second part: at a sentence, or in the middle of a single sentence."""
        first, stop = int(source.first[i]), int(source.stop[i])
        if stop - first == 1:
            return int(source.sentences[first] + source.sentences[stop]) // 2
        return int(source.sentences[first + 1 + chance % (stop - first - 1)])

    def _elsewhere(self, source: Spans, i: int, chance: int, length: int) -> NDArray[np.int32]:
        """About as many tokens, from a random sentence of another document (or span)."""
        document = int(source.document[i])
        near = int(source.documents[document]), int(source.documents[document + 1])
        if len(source.documents) == 2:
            near = int(source.first[i]), int(source.stop[i])
        sentence = chance % (len(source.sentences) - 1 - (near[1] - near[0]))
        if sentence >= near[0]:
            sentence += near[1] - near[0]
        owner = np.searchsorted(source.documents, sentence, side="right")
        start, end = source.sentences[sentence], source.sentences[source.documents[owner]]
        return source.flat[start : min(start + length, end)]


@dataclass(frozen=True)
class MaskedBatch:
    """Rows with masked tokens, padded on the right."""

    tokens: NDArray[np.int64]  # (B, T) inputs
    targets: NDArray[np.int64]  # (B, T) the masked tokens; IGNORE elsewhere
    attention_mask: NDArray[np.bool_]  # (B, T), True = a real token
    segments: NDArray[np.int64]  # (B, T), 1 = the second part and its [SEP]
    labels: NDArray[np.int64] | None  # (B,) IS_NEXT or NOT_NEXT; None: no pairs
    ids: NDArray[np.int64]  # (B,) which spans these are


class MaskedBatches:
    """Batches of spans with masked tokens; with `limit`, only so many, evenly spread."""

    def __init__(
        self,
        documents: Documents,
        tokenizer: Tokenizer,
        length: int,
        batch: int,
        seed: int,
        layout: Layout,
        masking: MaskingPolicy,
        limit: int | None = None,
    ) -> None:
        if batch < 1:
            raise ValueError(f"the batch is {batch}, but it must be at least 1")
        if length < layout.marks + 2:
            raise ValueError(f"the length is {length}, but a row needs at least {layout.marks + 2}")
        self.source = split_spans(documents, length - layout.marks)
        # A single token has no context to predict it from.
        chosen = np.flatnonzero(self.source.lengths > 1)
        if len(chosen) < layout.min_spans:
            raise ValueError(
                f"the text has {len(documents.flat):,} tokens, which make {len(chosen)} rows, "
                f"but at least {layout.min_spans} are needed: give a longer text"
            )
        if limit is not None and limit < len(chosen):
            chosen = chosen[np.arange(limit) * len(chosen) // limit]
        self.chosen = chosen
        self.tokenizer = tokenizer
        self.size = batch
        self.seed = seed
        self.layout = layout
        self.masker = TokenMasker(tokenizer, masking)
        lengths = self.source.lengths[chosen]
        self._plan = lru_cache(maxsize=2)(
            lambda epoch: similar_lengths(lengths, batch, seed, epoch)
        )
        draws(0, seed, 0)  # checks the seed

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.chosen) // self.size)

    def sample_ids(self, step: int) -> NDArray[np.int64]:
        """Which spans are in the batch of this step: (B,)."""
        epoch, index = epoch_of(step, self.steps_per_epoch)
        return self.chosen[self._plan(epoch)[index]]

    def batch(self, step: int) -> MaskedBatch:
        ids = self.sample_ids(step)
        parts, labels = self.layout.parts(self.source, ids, self.seed, step)
        tokens, attention_mask, segments = self._marked(parts)
        shown, targets = self.masker.corrupt(tokens, attention_mask, self.seed, step)
        return MaskedBatch(shown, targets, attention_mask, segments, labels, ids)

    def _marked(
        self, rows: Sequence[Parts]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        """Rows with special tokens, `[CLS] first [SEP] second [SEP]`, and padded."""
        longest = max(sum(map(len, row)) for row in rows) + self.layout.marks
        shape = (len(rows), longest)
        tokens = np.full(shape, self.tokenizer.padding, dtype=np.int64)  # (B, T)
        attention_mask, segments = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.int64)
        for i, row in enumerate(rows):
            end = 0
            for number, part in enumerate(row):
                before = self.tokenizer.prefix_ids if number == 0 else ()
                ids = np.concatenate((before, part, self.tokenizer.suffix_ids))
                tokens[i, end : end + len(ids)] = ids
                segments[i, end : end + len(ids)] = number
                end += len(ids)
            attention_mask[i, :end] = True
        return tokens, attention_mask, segments
