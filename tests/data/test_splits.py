"""Validation splits: deterministic, and disjoint from the training part."""

import re

import pytest

from clearformer.data.splits import (
    repeated_rows,
    repeated_text,
    split_pairs,
    split_rows,
    split_text,
)
from clearformer.data.tables import Pairs, Table
from clearformer.data.texts import TextSource, in_memory


def text_of(data):
    return TextSource("t", (in_memory("t", data),))


def test_split_text_holds_back_the_end():
    data = b"".join(b"line %d\n" % i for i in range(1000))
    training, validation = split_text(text_of(data), 0.1)
    assert training.read() + validation.read() == data
    assert training.read().endswith(b"\n")
    assert abs(validation.size / len(data) - 0.1) < 0.01
    again, _ = split_text(text_of(data), 0.1)
    assert again.sha256 == training.sha256


def test_split_text_does_not_cut_characters():
    for extra in range(8):
        data = ("x" * extra + "漢😀é" * 50).encode()
        for minimum in (1, 100, 200):
            training, validation = split_text(text_of(data), 0.3, minimum)
            assert (
                training.read() + validation.read()
            ).decode() == training.read().decode() + validation.read().decode()
            assert min(training.size, validation.size) >= minimum


def test_split_text_accepts_arbitrary_bytes():
    training, validation = split_text(text_of(b"\x80" * 100), 0.1)
    assert (training.size, validation.size) == (90, 10)


def test_split_text_respects_minimum_size():
    training, validation = split_text(text_of(b"a" * 90 + b"\n" + b"b" * 9), 0.05, 10)
    assert (training.size, validation.size) == (87, 13)


def test_rejects_text_too_short_to_split():
    sentence = (
        "t: it has 100 bytes, but 60 are needed for training and as many to evaluate on: "
        "give a longer text, or a shorter context"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        split_text(text_of(b"x" * 100), 0.1, 60)


@pytest.mark.parametrize("share", [0, 1, -0.5, float("nan")])
def test_rejects_invalid_validation_fraction(share):
    with pytest.raises(
        ValueError, match=f"the validation share is {share}, but it must be between 0 and 1"
    ):
        split_text(text_of(b"x" * 100), share)


def table_of(count, labels=("a", "b", "c")):
    """Labels in the ratio 3 : 2 : 1."""
    kinds = [label for label, times in zip(labels, (3, 2, 1), strict=True) for _ in range(times)]
    return Table(
        "rows", tuple(f"text {i}" for i in range(count)), tuple(kinds[i % 6] for i in range(count))
    )


def test_split_rows_is_stratified_by_label():
    table = table_of(600)
    training, validation = split_rows(table, 0.1, seed=0)
    assert len(training) + len(validation) == 600
    assert not set(training.texts) & set(validation.texts)
    assert [validation.labels.count(label) for label in "abc"] == [30, 20, 10]
    # in the order of the table
    assert [int(text[5:]) for text in training.texts] == sorted(
        int(text[5:]) for text in training.texts
    )


def test_split_rows_depends_on_seed_not_on_order():
    table = table_of(600)
    _, first = split_rows(table, 0.1, seed=0)
    _, again = split_rows(table.select(range(599, -1, -1)), 0.1, seed=0)
    _, other = split_rows(table, 0.1, seed=1)
    assert set(first.texts) == set(again.texts) != set(other.texts)


def test_split_rows_keeps_equal_texts_together():
    table = Table("t", tuple(f"{i // 5}" for i in range(200)), None)
    training, validation = split_rows(table, 0.11, seed=0)
    assert repeated_rows(training, validation) == 0
    assert 20 <= len(validation) <= 25


def test_rejects_too_few_rows():
    with pytest.raises(
        ValueError,
        match=re.escape(
            "t: label 'y' has too few different rows (1) to split off a validation part: give more"
        ),
    ):
        split_rows(Table("t", ("a", "b", "c"), ("x", "x", "y")), 0.1, 0)
    with pytest.raises(ValueError, match=r"t: there are too few different rows \(1\) to split off"):
        split_rows(Table("t", ("a", "a"), None), 0.1, 0)


def test_repeated_rows_counts_training_texts():
    training = Table("t", ("a", "b ", "c"), None)
    assert repeated_rows(training, Table("e", ("b", "d", "b", " a"), None)) == 3
    assert repeated_rows(training, Table("e", ("d",), None)) == 0


def test_repeated_text_measures_overlap():
    data = b"".join(b"line number %d of many\n" % (i * 7919) for i in range(100_000))  # > 1 chunk
    training, validation = split_text(text_of(data), 0.1)
    assert repeated_text(training, validation) == 0
    assert repeated_text(text_of(data), validation) == 1
    half = text_of(validation.read()[: validation.size // 2] + b"new %d " * 100_000)
    assert 0.4 < repeated_text(training, half) + repeated_text(validation, half) < 0.9
    assert repeated_text(text_of(b"abc"), text_of(b"abc")) == 1
    place = 2**20 - 30  # across two chunks
    assert repeated_text(text_of(data), text_of(data[place : place + 64])) == 1


def test_split_pairs_keeps_equal_sources_together():
    sources = tuple(f"text {i % 40}" for i in range(120))
    pairs = Pairs("p", sources, tuple(f"translation {i}" for i in range(120)))
    training, validation = split_pairs(pairs, 0.1, seed=0)
    assert set(training.sources).isdisjoint(validation.sources)
    assert len(validation) == 12
    together = zip(training.sources + validation.sources, training.targets + validation.targets,
                   strict=True)  # fmt: skip
    assert sorted(together) == sorted(zip(pairs.sources, pairs.targets, strict=True))
    assert split_pairs(pairs, 0.1, seed=0)[1] == validation
    assert split_pairs(pairs, 0.1, seed=1)[1] != validation
