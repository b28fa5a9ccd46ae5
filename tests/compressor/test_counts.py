from collections import Counter, defaultdict

import numpy as np
import pytest

from clearformer.compressor import counts
from clearformer.compressor.counts import Counts


def plain(order, text, vocabulary):
    """Absolute discounting by dictionaries, for orders that have all contexts."""
    followed = defaultdict(Counter)
    text = [0] * order + list(text)
    below = np.full(vocabulary, 1 / vocabulary)
    found = []
    for n in range(1, order + 1):
        for place in range(order, len(text)):
            followed[tuple(text[place - n : place])][text[place]] += 1
        seen = followed[tuple(text[len(text) - n :])]
        total = sum(seen.values()) + counts.DENSE_RESERVE
        left = counts.DENSE_DISCOUNT * len(seen) + counts.DENSE_RESERVE
        below = left * below / total
        for token, count in seen.items():
            below[token] += (count - counts.DENSE_DISCOUNT) / total
        found.append(below)
    return found


def test_dense_orders_match_dictionaries():
    text = np.random.default_rng(0).integers(0, 5, 200)
    table = Counts(3, 1, 5)
    assert len(table.dense) == 3
    for token in text:
        table.update(np.array([token]))
    for found, expected in zip(table.probabilities()[:, 0], plain(3, text, 5), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("vocabulary", [256, 70_000])
def test_probabilities_sum_to_one_and_none_is_zero(vocabulary):
    chance = np.random.default_rng(0)
    table = Counts(4, 3, vocabulary)
    for _ in range(60):
        table.update(chance.integers(0, 4, 3) * (vocabulary // 4))
        found = table.probabilities()
        np.testing.assert_allclose(found.sum(axis=2), 1)
        assert (found > 0).all()


def test_hashed_orders_predict_repeated_text():
    text = np.frombuffer(b"a rose is a rose is a rose is a", np.uint8).astype(np.int64)
    table = Counts(6, 1, 256)
    for token in text:
        table.update(np.array([token]))
    longest = table.probabilities()[-1, 0]
    assert longest.argmax() == ord(" ")
    assert longest.max() > 0.8
    assert table.known.tolist() == [4]
    assert table.confidence[0] // 16 == 4


def test_streams_share_what_they_count():
    """What one stream has read predicts the other."""
    first = np.frombuffer(b"the lazy dog", np.uint8).astype(np.int64)
    second = np.frombuffer(b"------------", np.uint8).astype(np.int64)
    table = Counts(4, 2, 256)
    for pair in np.stack((first, second), axis=1):
        table.update(pair)
    for token in b"the lazy do":
        table.update(np.array([ord("="), token]))
    assert table.probabilities()[-1, 1].argmax() == ord("g")


def test_full_rows_are_halved():
    table = Counts(1, 1, 4)
    table.dense[0][1, 2] = counts.FULL
    table.dense[0][1, 3] = 8
    table.update(np.array([1]))
    table.update(np.array([2]))
    assert table.dense[0][1].tolist() == [0, 0, counts.FULL // 2 + 1, 4]


def test_new_context_takes_the_row_of_an_old_one(monkeypatch):
    monkeypatch.setattr(counts, "ROW_BITS", 1)
    monkeypatch.setattr(counts, "DENSE", 0)
    chance = np.random.default_rng(0)
    table = Counts(3, 2, 200)
    for _ in range(100):
        table.update(chance.integers(0, 200, 2))
    np.testing.assert_allclose(table.probabilities().sum(axis=2), 1)
    assert table.counts.max() <= 4
