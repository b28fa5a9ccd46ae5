"""Batches from a token stream: every window once per epoch, from (seed, step) alone."""

import re

import numpy as np
import pytest

from clearformer.data.files import open_text
from clearformer.data.streams import (
    IGNORE,
    SegmentBatches,
    StreamBatches,
    evaluation_segments,
    evaluation_windows,
)
from clearformer.data.tokens import TokenArray, prepare
from clearformer.text import Bytes

# tokens, length, batch: sizes that divide and sizes that do not, one window, more rows than windows
SIZES = [
    (1000, 10, 4),
    (997, 13, 7),
    (101, 10, 3),
    (11, 10, 1),
    (19, 10, 5),
    (20, 10, 2),
    (64, 1, 9),
    (30, 7, 50),
    (2, 1, 1),
]


def stream(count):
    return TokenArray(np.arange(count))  # a token is its own place


@pytest.mark.parametrize(("count", "length", "batch"), SIZES)
def test_every_window_once_per_epoch_and_none_overlap(count, length, batch):
    batches = StreamBatches(stream(count), length, batch, seed=3)
    epochs = 4
    steps = -(-epochs * batches.windows // batch)
    starts = np.concatenate([batches.sample_ids(step) for step in range(steps)])
    for epoch in range(epochs):
        seen = np.sort(starts[epoch * batches.windows :][: batches.windows])
        assert len(seen) == batches.windows
        assert (np.diff(seen) == length).all()  # side by side: each once, no overlap
        assert seen[0] >= 0
        assert seen[-1] + length + 1 <= count
    # At most one window in an epoch is lost to the offset.
    assert batches.windows >= max(1, (count - 1) // length - 1)


@pytest.mark.parametrize(("count", "length", "batch"), SIZES)
def test_targets_are_shifted_tokens(count, length, batch):
    batches = StreamBatches(stream(count), length, batch, seed=0)
    for step in range(5):
        got = batches.batch(step)
        assert got.tokens.shape == got.targets.shape == (batch, length)
        assert got.tokens.dtype == got.targets.dtype == np.int64
        assert np.array_equal(got.starts, batches.sample_ids(step))
        assert np.array_equal(got.tokens, got.starts[:, None] + np.arange(length))
        assert np.array_equal(got.targets, got.tokens + 1)


@pytest.mark.parametrize(("count", "length", "batch"), SIZES)
def test_a_batch_is_a_function_of_seed_and_step(count, length, batch):
    """Resumed anywhere, in any order, by a new object: the same."""
    batches = StreamBatches(stream(count), length, batch, seed=5)
    expected = [batches.sample_ids(step).tolist() for step in range(30)]
    for step in (29, 0, 17, batches.steps_per_epoch - 1, batches.steps_per_epoch, 3):
        fresh = StreamBatches(stream(count), length, batch, seed=5)
        if step < 30:
            assert fresh.sample_ids(step).tolist() == expected[step]
            assert batches.sample_ids(step).tolist() == expected[step]


def test_steps_per_epoch_cover_every_window():
    batches = StreamBatches(stream(1000), 10, 7, seed=0)
    assert (batches.windows, batches.steps_per_epoch) == (99, 15)
    assert StreamBatches(stream(1000), 10, 99, seed=0).steps_per_epoch == 1
    seen = np.concatenate([batches.sample_ids(step) for step in range(15)])[:99]
    assert len(set(seen.tolist())) == 99


def test_epochs_and_seeds_differ_in_order_and_offset():
    batches = StreamBatches(stream(100_000), 100, 999, seed=0)
    assert batches.windows == 999
    epochs = [batches.sample_ids(epoch) for epoch in range(20)]
    offsets = {int(starts.min()) for starts in epochs}
    assert len(offsets) > 10
    assert max(offsets) < 100
    orders = {tuple(((starts - starts.min()) // 100).tolist()) for starts in epochs}
    assert len(orders) == 20
    other = StreamBatches(stream(100_000), 100, 999, seed=1).sample_ids(0)
    assert other.tolist() != epochs[0].tolist()


def test_batch_order_is_stable_across_versions():
    """Data order is a promise between versions: runs are resumed after upgrades."""
    batches = StreamBatches(stream(1000), 10, 6, seed=42)
    assert batches.sample_ids(0).tolist() == [952, 722, 462, 112, 72, 122]
    assert batches.sample_ids(100).tolist() == [412, 262, 542, 682, 632, 562]


def test_batches_from_token_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(bytes(range(256)) * 4)
    tokens = prepare(open_text(path), Bytes(), tmp_path / "cache")
    got = StreamBatches(tokens, 16, 4, seed=0).batch(2)
    assert np.array_equal(got.tokens, (got.starts[:, None] + np.arange(16)) % 256)
    assert np.array_equal(got.targets, (got.tokens + 1) % 256)


def test_rejects_invalid_arguments():
    sentence = (
        "the text has 10 tokens, but a context of 10 needs 11: "
        "give a longer text or a shorter context"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        StreamBatches(stream(10), 10, 1, seed=0)
    with pytest.raises(ValueError, match="the length is 0, but it must be at least 1"):
        StreamBatches(stream(10), 0, 1, seed=0)
    with pytest.raises(ValueError, match="the batch is -1, but it must be at least 1"):
        StreamBatches(stream(10), 2, -1, seed=0)
    with pytest.raises(ValueError, match="the seed is -1"):
        StreamBatches(stream(10), 2, 1, seed=-1)
    with pytest.raises(ValueError, match="the step is -1, but steps are counted from 0"):
        StreamBatches(stream(10), 2, 1, seed=0).batch(-1)


@pytest.mark.parametrize("count", [2, 3, 9, 10, 11, 12, 25, 50, 51])
@pytest.mark.parametrize(
    ("context", "stride"), [(10, 10), (10, 5), (10, 1), (7, 3), (1, 1), (100, 40)]
)
@pytest.mark.parametrize("batch", [1, 4])
def test_evaluation_windows_score_every_token_once(count, context, stride, batch):
    scored = []
    for got in evaluation_windows(stream(count), context, stride, batch):
        assert got.tokens.shape[1] == min(context, count - 1)
        assert np.array_equal(got.tokens, got.starts[:, None] + np.arange(got.tokens.shape[1]))
        for tokens, targets in zip(got.tokens, got.targets, strict=True):
            valid = targets != IGNORE
            assert np.array_equal(targets[valid], tokens[valid] + 1)
            for target in targets[valid].tolist():
                scored.append(target)
                seen = target - tokens[0]  # tokens it is predicted from
                assert seen >= min(target, context - stride + 1)
    assert scored == list(range(1, count))


def test_evaluation_windows_use_given_ignore_index():
    [got] = evaluation_windows(stream(8), 4, 2, 9, ignore=-1)
    assert got.targets.tolist() == [[1, 2, 3, 4], [-1, -1, 5, 6], [-1, -1, -1, 7]]
    assert got.starts.tolist() == [0, 2, 3]


def test_evaluation_windows_reject_invalid_arguments():
    with pytest.raises(ValueError, match="there are 1 tokens, but evaluation needs at least 2"):
        next(evaluation_windows(stream(1), 4, 2, 1))
    for stride in (0, 5):
        with pytest.raises(
            ValueError, match=f"the stride is {stride}, but it must be from 1 to the context of 4"
        ):
            next(evaluation_windows(stream(9), 4, stride, 1))


SEGMENTS = [(1000, 10, 4), (997, 13, 7), (41, 10, 4), (101, 1, 3), (64, 8, 2)]


@pytest.mark.parametrize(("count", "length", "batch"), SEGMENTS)
def test_segment_rows_continue_from_previous_step(count, length, batch):
    batches = SegmentBatches(stream(count), length, batch, seed=3)
    for step in range(3 * batches.steps_per_epoch):
        got = batches.batch(step)
        assert got.tokens.shape == (batch, length)
        assert np.array_equal(got.targets, got.tokens + 1)
        assert got.targets.max() < count
        assert batches.fresh(step) == (step % batches.steps_per_epoch == 0)
        if not batches.fresh(step):
            assert np.array_equal(got.tokens[:, 0], batches.batch(step - 1).targets[:, -1])


def test_segment_rows_are_disjoint_and_cover_most_of_stream():
    batches = SegmentBatches(stream(997), 13, 7, seed=3)
    places = np.concatenate(
        [batches.batch(step).tokens.ravel() for step in range(batches.steps_per_epoch)]
    )
    assert len(places) == len(np.unique(places)) > 997 - 7 * 2 * 13
    again = SegmentBatches(stream(997), 13, 7, seed=3)
    assert np.array_equal(again.sample_ids(5), batches.sample_ids(5))
    offsets = {int(batches.sample_ids(k * batches.steps_per_epoch)[0]) for k in range(9)}
    assert len(offsets) > 1  # an epoch has its own offsets


def test_segment_batches_reject_short_text():
    message = (
        "the text has 100 tokens, but 4 streams of segments of 25 need 101: give a longer text, "
        "a shorter segment (--length) or a smaller --batch-size"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        SegmentBatches(stream(100), 25, 4, seed=0)
    for length, batch, name in ((0, 1, "length"), (1, 0, "batch")):
        with pytest.raises(ValueError, match=f"^the {name} is 0, but it must be at least 1$"):
            SegmentBatches(stream(100), length, batch, seed=0)
    with pytest.raises(ValueError, match="steps are counted from 0"):
        SegmentBatches(stream(100), 5, 4, seed=0).sample_ids(-1)


@pytest.mark.parametrize("streams", [1, 3, 8, 500])
@pytest.mark.parametrize(("count", "length", "before"), [(100, 7, 20), (101, 10, 0), (2, 5, 3)])
def test_evaluation_segments_score_each_token_once(count, length, before, streams):
    scored, last = [], None
    for piece in evaluation_segments(stream(count), length, streams, before):
        keep = piece.targets != IGNORE
        assert np.array_equal(piece.targets[keep], piece.tokens[keep] + 1)
        scored += piece.targets[keep].tolist()
        if last is not None:
            goes_on = piece.tokens[:, 0] == last[:, -1] + 1
            assert (goes_on | ~keep.any(axis=1)).all()
        last = piece.tokens
    assert sorted(scored) == list(range(1, count))


def test_evaluation_segments_read_context_before_scoring():
    first = next(iter(evaluation_segments(stream(101), 10, 4, before=20)))
    assert first.tokens[:, 0].tolist() == [0, 5, 30, 55]
    assert (first.targets[0] != IGNORE).all()
    assert (first.targets[1:] == IGNORE).all()


def test_evaluation_segments_reject_single_token():
    with pytest.raises(ValueError, match="there are 1 tokens, but evaluation needs at least 2"):
        next(iter(evaluation_segments(stream(1), 5, 1, 0)))
