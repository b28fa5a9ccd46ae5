"""Batches of labelled rows: every row once per epoch, little padding, from (seed, step) alone."""

import re

import numpy as np
import pytest

from clearformer.data.rows import (
    IGNORE,
    RowBatches,
    Rows,
    encode_rows,
    evaluation_rows,
    label_ids,
    label_names,
    pad,
)
from clearformer.data.tables import Table
from clearformer.text import WordPieces, Words

LENGTHS = np.random.Generator(np.random.PCG64(0))


def rows_of(lengths, before=(), after=()):
    """Row i holds the number i + 100, as often as it is long."""
    starts = np.concatenate(([0], np.cumsum(lengths)))
    flat = np.repeat(np.arange(len(lengths)) + 100, lengths).astype(np.int32)
    labels = np.arange(len(lengths), dtype=np.int64) % 3
    return Rows(flat, starts, labels, ("a", "b", "c"), before, after)


SIZES = [(1, 1), (5, 2), (64, 8), (1000, 7), (997, 32), (3, 10), (4096, 4)]


@pytest.mark.parametrize(("count", "batch"), SIZES)
def test_every_row_once_per_epoch(count, batch):
    batches = RowBatches(rows_of(LENGTHS.integers(0, 50, count)), batch, seed=1, length=20)
    assert batches.steps_per_epoch == -(-count // batch)
    for epoch in range(3):
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        seen = np.concatenate([batches.sample_ids(step) for step in steps])
        assert sorted(seen.tolist()) == list(range(count))
        assert all(len(batches.sample_ids(step)) <= batch for step in steps)


@pytest.mark.parametrize(("count", "batch"), SIZES)
def test_a_batch_is_a_function_of_seed_and_step(count, batch):
    rows = rows_of(LENGTHS.integers(0, 50, count))
    batches = RowBatches(rows, batch, seed=9, length=20)
    expected = [batches.sample_ids(step).tolist() for step in range(25)]
    for step in (24, 0, 13, 7):
        fresh = RowBatches(rows, batch, seed=9, length=20)
        assert fresh.sample_ids(step).tolist() == expected[step]
        assert batches.sample_ids(step).tolist() == expected[step]


def test_batch_is_its_padded_rows():
    lengths = LENGTHS.integers(0, 30, 200)
    batches = RowBatches(rows_of(lengths), 8, seed=0, length=20)
    for step in range(25):
        got = batches.batch(step)
        assert got.tokens.dtype == got.labels.dtype == np.int64
        assert got.attention_mask.dtype == np.bool_
        assert (
            got.tokens.shape
            == got.attention_mask.shape
            == (8, max(1, lengths[got.ids].clip(max=20).max()))
        )
        assert np.array_equal(got.labels, got.ids % 3)
        for row, attention_mask, i in zip(
            got.tokens, got.attention_mask, got.ids.tolist(), strict=True
        ):
            real = min(lengths[i], 20)
            assert attention_mask.tolist() == [True] * real + [False] * (
                len(row) - real
            )  # on the right
            assert row.tolist() == [i + 100] * real + [0] * (len(row) - real)


def test_batch_widths_are_rounded():
    """In half precision oneDNN caches kernels for each width."""
    lengths = LENGTHS.integers(33, 100, 400)
    batches = RowBatches(rows_of(lengths), 4, seed=0, length=90)
    widths = set()
    for step in range(100):
        got = batches.batch(step)
        longest = lengths[got.ids].clip(max=90).max()
        assert longest <= got.tokens.shape[1] < longest + 8
        widths.add(got.tokens.shape[1])
    assert widths <= {40, 48, 56, 64, 72, 80, 88, 90}
    assert len(widths) > 4


def test_batches_group_similar_lengths_in_random_order():
    lengths = LENGTHS.integers(1, 500, 5000)
    batches = RowBatches(rows_of(lengths), 16, seed=0, length=500)
    drawn = [batches.batch(step) for step in range(batches.steps_per_epoch)]
    kept = sum(each.attention_mask.sum() for each in drawn) / sum(
        each.attention_mask.size for each in drawn
    )
    assert kept > 0.95
    widths = [each.tokens.shape[1] for each in drawn[:60]]
    assert widths != sorted(widths)
    first = {
        frozenset(batches.sample_ids(step).tolist()) for step in range(batches.steps_per_epoch)
    }
    second = {
        frozenset(batches.sample_ids(step + batches.steps_per_epoch).tolist())
        for step in range(batches.steps_per_epoch)
    }
    assert len(first & second) < 5  # other companions in each epoch


@pytest.mark.parametrize(
    ("cut", "kept"),
    [("head", [0, 1, 2, 3, 4]), ("tail", [5, 6, 7, 8, 9]), ("ends", [0, 1, 2, 8, 9])],
)
def test_truncation_modes(cut, kept):
    rows = Rows(np.arange(13, dtype=np.int32), np.array([0, 10, 13]), np.array([0, 1]), ("a", "b"))
    got = pad(rows, np.array([0, 1]), 5, cut)
    assert got.tokens.tolist() == [kept, [10, 11, 12, 0, 0]]
    batches = RowBatches(rows, 2, seed=0, length=5, cut=cut)
    assert batches.cut_rows == 1
    assert RowBatches(rows, 2, seed=0, length=10, cut=cut).cut_rows == 0


def test_special_tokens_survive_truncation():
    rows = rows_of([9, 2, 0], before=(1,), after=(2, 3))
    for cut in ("head", "tail", "ends"):
        got = pad(rows, np.array([0, 1, 2]), 6, cut)
        assert got.tokens.tolist() == [
            [1, 100, 100, 100, 2, 3],
            [1, 101, 101, 2, 3, 0],
            [1, 2, 3, 0, 0, 0],
        ]
        assert got.attention_mask.sum(axis=1).tolist() == [6, 5, 3]
    assert RowBatches(rows, 2, seed=0, length=6).cut_rows == 1


def test_batch_of_empty_rows():
    got = pad(rows_of([0, 0]), np.array([0, 1]), 5, "head")
    assert got.tokens.tolist() == [[0], [0]]
    assert not got.attention_mask.any()


def test_evaluation_sees_every_row_once_by_length():
    lengths = LENGTHS.integers(0, 40, 101)
    seen, widths = [], []
    for got in evaluation_rows(rows_of(lengths), 8, 30):
        seen += got.ids.tolist()
        widths.append(got.tokens.shape[1])
    assert sorted(seen) == list(range(101))
    assert widths == sorted(widths)
    assert [min(lengths[i], 30) for i in seen] == sorted(lengths.clip(max=30).tolist())


def test_encode_rows_of_table():
    table = Table("t", ("the cat", "", "the dog sat"), ("x", "y", "x"))
    tokenizer = Words(["the", "cat", "sat"])
    rows = encode_rows(table, tokenizer, label_names(table))
    assert len(rows) == 3
    assert rows.lengths.tolist() == [2, 0, 3]
    assert rows.labels.tolist() == [0, 1, 0]
    got = pad(rows, np.array([0, 2]), 10, "head")
    assert got.tokens.tolist() == [[2, 3, 0], [2, 1, 4]]
    assert rows.sha256() == encode_rows(table, tokenizer, ("x", "y")).sha256()
    for other in (
        encode_rows(table, Words(["cat", "the", "sat"]), ("x", "y")),
        encode_rows(table.select([0, 2, 1]), tokenizer, ("x", "y")),
        encode_rows(table, tokenizer, ("y", "x")),
    ):
        assert other.sha256() != rows.sha256()


def test_word_pieces_add_special_tokens():
    tokenizer = WordPieces.train(["the cat sat on the mat"] * 5, 64)
    rows = encode_rows(Table("t", ("the cat",), None), tokenizer, ())
    got = pad(rows, np.array([0]), 20, "head")
    shown = tokenizer.pieces(got.tokens[0])
    assert (shown[0], shown[-1]) == ("[CLS]", "[SEP]")
    assert got.labels.tolist() == [IGNORE]


def test_label_names_are_sorted():
    def names(*labels):
        return label_names(Table("t", labels, labels))

    assert names("pos", "neg", "pos") == ("neg", "pos")
    assert names("10", "9", "-1") == ("-1", "9", "10")
    assert names("10", "9", "x") == ("10", "9", "x")


def test_rejects_invalid_labels():
    one = Table("reviews.csv", ("a", "b"), ("pos", "pos"))
    sentence = "reviews.csv: a classifier needs at least two labels, but there is only 'pos'"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        label_names(one)
    with pytest.raises(ValueError, match="but there is none"):
        label_names(Table("t", ("a",), None))
    other = Table("test.csv", ("a", "b", "c", "d"), ("pos", "bad", "worse", "bad"))
    sentence = (
        "test.csv: 3 rows have labels that are not in the training data ('bad', 'worse'), "
        "but the labels are 'neg', 'pos': remove these rows, or evaluate with "
        "--unknown-label skip"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        label_ids(other, ("neg", "pos"))
    with pytest.raises(ValueError, match="t: there are no rows"):
        encode_rows(Table("t", (), ()), Words(["a"]), ("x", "y"))


def test_rejects_invalid_arguments():
    rows = rows_of([3], before=(1,), after=(2,))
    with pytest.raises(ValueError, match="the length is 2, but a row needs at least 3"):
        RowBatches(rows, 1, seed=0, length=2)
    with pytest.raises(ValueError, match="the batch is 0, but it must be at least 1"):
        RowBatches(rows, 0, seed=0, length=9)
    with pytest.raises(
        ValueError, match="the cut is 'middle', but it must be 'head', 'tail' or 'ends'"
    ):
        next(evaluation_rows(rows, 1, 9, "middle"))
    with pytest.raises(ValueError, match="the seed is -1"):
        RowBatches(rows, 1, seed=-1, length=9)
    with pytest.raises(ValueError, match="the step is -1, but steps are counted from 0"):
        RowBatches(rows, 1, seed=0, length=9).batch(-1)
