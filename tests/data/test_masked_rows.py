"""Rows of masked-token batches: spans, sentence pairs, and batches from (seed, step) alone."""

import numpy as np
import pytest

from clearformer.data.documents import Documents
from clearformer.data.masked_rows import (
    IS_NEXT,
    NOT_NEXT,
    MaskedBatches,
    SentencePairs,
    SingleSpan,
    split_spans,
)
from clearformer.data.masking import MaskingPolicy
from clearformer.data.rows import IGNORE
from clearformer.text import WordPieces

CHANCE = np.random.Generator(np.random.PCG64(0))
START = CHANCE.bit_generator.state


@pytest.fixture(autouse=True)
def the_same_draws_whichever_tests_ran_before():
    CHANCE.bit_generator.state = START


HIDING = MaskingPolicy()


@pytest.fixture(scope="module")
def tokenizer():
    words = [f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
    return WordPieces.train([" ".join(words)], 400)


def documents_of(sizes, ids=None):
    """Documents with sentences of these sizes; by default every token is its own place + 5."""
    lengths = np.array([size for document in sizes for size in document])
    flat = np.arange(lengths.sum()) + 5 if ids is None else CHANCE.choice(ids, lengths.sum())
    return Documents(
        flat=flat.astype(np.int32),
        sentences=np.concatenate(([0], np.cumsum(lengths))),
        documents=np.concatenate(([0], np.cumsum([len(document) for document in sizes]))),
    )


def random_sizes(count, longest=30, limit=12):
    return [CHANCE.integers(1, longest, CHANCE.integers(1, limit)).tolist() for _ in range(count)]


SIZES = [
    [[3]],
    [[50]],
    [[3, 4], [1], [60, 2, 2]],
    random_sizes(80),
    [random_sizes(60, limit=2)[0] * 40],
]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("room", [2, 7, 25, 1000])
def test_spans_cover_every_token_once_and_fit(sizes, room):
    source = documents_of(sizes)
    found = split_spans(source, room)
    covered = [
        source.flat[found.sentences[a] : found.sentences[b]]
        for a, b in zip(found.first, found.stop, strict=True)
    ]
    assert np.array_equal(np.concatenate(covered), source.flat)
    assert found.lengths.max() <= room
    assert found.lengths.min() >= 1
    ends = source.sentences[source.documents]
    for i, each in enumerate(covered):
        document = int(found.document[i])
        assert ends[document] <= each[0] - 5 <= each[-1] - 5 < ends[document + 1]


def test_spans_are_filled_with_whole_sentences():
    found = split_spans(documents_of([[3, 4, 3, 9], [8, 8], [25]]), 10)
    assert found.lengths.tolist() == [10, 9, 8, 8, 10, 10, 5]


def batches_of(tokenizer, layout, sizes=None, length=24, batch=8, seed=0, **more):
    ids = np.arange(5, tokenizer.size)
    source = documents_of(sizes or random_sizes(120), ids)
    return MaskedBatches(source, tokenizer, length, batch, seed, layout, HIDING, **more)


def original(batch):
    return np.where(batch.targets == IGNORE, batch.tokens, batch.targets)


@pytest.mark.parametrize("layout", [SingleSpan(), SentencePairs()])
def test_every_span_once_per_epoch_with_special_tokens(tokenizer, layout):
    batches = batches_of(tokenizer, layout)
    opening, closing = tokenizer.prefix_ids[0], tokenizer.suffix_ids[0]
    seen = []
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        seen += batch.ids.tolist()
        assert batch.tokens.shape[1] <= 24
        tokens = original(batch)
        assert (tokens[:, 0] == opening).all()
        assert (tokens[~batch.attention_mask] == tokenizer.padding).all()
        lengths = batch.attention_mask.sum(1)
        assert (np.take_along_axis(tokens, lengths[:, None] - 1, 1) == closing).all()
        assert ((tokens == closing).sum(1) == layout.marks - 1).all()
        # The second segment is the second part with its mark, and padding counts as the first.
        before = np.cumsum(tokens == closing, axis=1) - (tokens == closing)
        assert np.array_equal(batch.segments == 1, (before == 1) & batch.attention_mask)
    source = batches.source
    assert sorted(seen) == np.flatnonzero(source.lengths > 1).tolist()


def test_single_span_row_equals_span(tokenizer):
    batches = batches_of(tokenizer, SingleSpan())
    source = batches.source
    batch = batches.batch(3)
    assert batch.labels is None
    assert not batch.segments.any()
    for i, row, attention_mask in zip(
        batch.ids, original(batch), batch.attention_mask, strict=True
    ):
        whole = source.flat[source.sentences[source.first[i]] : source.sentences[source.stop[i]]]
        assert np.array_equal(row[attention_mask][1:-1], whole)


def parts(row, tokenizer):
    first, second = np.flatnonzero(row == tokenizer.suffix_ids[0])[:2]
    return row[1:first], row[first + 1 : second]


@pytest.mark.parametrize(
    "sizes", [None, [CHANCE.integers(1, 12, 900).tolist()]], ids=["many documents", "one document"]
)
def test_half_of_sentence_pairs_are_consecutive(tokenizer, sizes):
    batches = batches_of(tokenizer, SentencePairs(), sizes, length=40)
    source = batches.source
    labels, surprising = [], 0
    for step in range(3 * batches.steps_per_epoch):
        batch = batches.batch(step)
        labels += batch.labels.tolist()
        rows = zip(batch.ids, original(batch), batch.labels, strict=True)
        for i, row, label in rows:
            start, stop = source.sentences[source.first[i]], source.sentences[source.stop[i]]
            first, second = parts(row, tokenizer)
            assert 1 <= len(first) < stop - start
            assert np.array_equal(first, source.flat[start : start + len(first)])
            rest = source.flat[start + len(first) : stop]
            assert 1 <= len(second) <= len(rest)
            if label == IS_NEXT:
                assert np.array_equal(second, rest)
                if source.stop[i] - source.first[i] > 1:
                    assert start + len(first) in source.sentences
            else:
                surprising += not np.array_equal(second, rest[: len(second)])
    count = len(labels)
    assert np.mean(labels) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(count))
    # Short parts of random tokens may be equal by chance.
    assert surprising > 0.95 * sum(label == NOT_NEXT for label in labels)


def test_random_second_sentence_is_from_other_document(tokenizer):
    sizes = random_sizes(30)
    source = documents_of(sizes)  # every token is its own place
    layout = SentencePairs()
    found = split_spans(source, 20)
    ids = np.flatnonzero(found.lengths > 1)  # a single sentence of one token has no two parts
    for step in range(20):
        rows, labels = layout.parts(found, ids, 4, step)
        for i, (first, second), label in zip(ids, rows, labels, strict=True):
            near = found.sentences[found.documents[found.document[i] : found.document[i] + 2]] + 5
            assert near[0] <= first[0] < near[1]
            assert (near[0] <= second[0] < near[1]) == (label == IS_NEXT)
            assert np.array_equal(second, np.arange(second[0], second[0] + len(second)))


@pytest.mark.parametrize("layout", [SingleSpan(), SentencePairs()])
def test_a_batch_is_a_function_of_seed_and_step(tokenizer, layout):
    sizes = random_sizes(40)
    source = documents_of(sizes, np.arange(5, tokenizer.size))

    def fresh(seed=2):
        return MaskedBatches(source, tokenizer, 24, 8, seed, layout, HIDING)

    forward = fresh()
    expected = [forward.batch(step) for step in range(30)]
    for step in (29, 0, 13):
        again = fresh().batch(step)
        for name, value in vars(expected[step]).items():
            assert np.array_equal(getattr(again, name), value), name
    epoch = forward.steps_per_epoch
    assert not np.array_equal(np.sort(expected[0].ids), np.sort(fresh(3).batch(0).ids))
    # The same stretch hides other tokens in another epoch.
    first = next(s for s in range(epoch) if 7 in forward.batch(s).ids)
    later = next(s for s in range(epoch, 2 * epoch) if 7 in forward.batch(s).ids)
    places = []
    for step in (first, later):
        batch = forward.batch(step)
        row = batch.ids.tolist().index(7)
        places.append(np.flatnonzero(batch.targets[row] != IGNORE).tolist())
    assert places[0] != places[1]


def test_limited_spans_are_spread_over_text(tokenizer):
    batches = batches_of(tokenizer, SingleSpan(), limit=10)
    assert len(batches.chosen) == 10
    assert batches.steps_per_epoch == 2
    assert batches.chosen.max() > 0.8 * len(batches.source)
    assert (np.diff(batches.chosen) > 5).all()


@pytest.mark.parametrize(
    ("sizes", "length", "layout", "words"),
    [
        ([[6]], 24, SentencePairs(), "6 tokens, which make 1 rows, but at least 2 are needed"),
        ([[1]], 24, SingleSpan(), "1 tokens, which make 0 rows, but at least 1 are needed"),
        ([[6]], 4, SentencePairs(), "the length is 4, but a row needs at least 5"),
    ],
)
def test_rejects_data_that_does_not_fit(tokenizer, sizes, length, layout, words):
    with pytest.raises(ValueError, match=words):
        MaskedBatches(documents_of(sizes), tokenizer, length, 8, 0, layout, HIDING)


def test_rejects_invalid_batch_and_step(tokenizer):
    with pytest.raises(ValueError, match="the batch is 0"):
        batches_of(tokenizer, SingleSpan(), batch=0)
    with pytest.raises(ValueError, match="the step is -1"):
        batches_of(tokenizer, SingleSpan()).batch(-1)
