"""Shuffling as a published function of (seed, epoch)."""

import random

import numpy as np
import pytest

from clearformer.data.shuffle import draws, permutation


def philox(counter, key):
    """Philox 4x64 with ten rounds, from the paper (Salmon et al. 2011): four numbers."""
    a, b, c, d = counter
    first, second = key
    for _ in range(10):
        high, low = divmod(0xD2E7470EE14C6C93 * a, 2**64)
        top, bottom = divmod(0xCA5A826395121157 * c, 2**64)
        a, b, c, d = top ^ b ^ first, bottom, high ^ d ^ second, low
        first = (first + 0x9E3779B97F4A7C15) % 2**64
        second = (second + 0xBB67AE8584CAA73B) % 2**64
    return [a, b, c, d]


def test_draws_match_philox():
    known = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert philox((0, 0, 0, 0), (0, 0)) == known  # the authors' own test vector
    for seed, epoch, purpose in [(0, 0, 0), (42, 7, 1), (2**64 - 1, 10**6, 0)]:
        expected = [
            number
            for block in (1, 2, 3)  # NumPy counts before it draws
            for number in philox((block, 0, 0, purpose), (seed, epoch))
        ]
        assert draws(12, seed, epoch, purpose).tolist() == expected


def test_permutation_is_stable_across_versions():
    """Another order of samples would break every run that is resumed after an upgrade."""
    assert permutation(10, seed=0, epoch=0).tolist() == [0, 2, 9, 1, 8, 5, 4, 3, 6, 7]
    assert permutation(10, seed=7, epoch=3).tolist() == [2, 5, 9, 7, 3, 0, 6, 8, 4, 1]


def test_permutation_contains_every_number_once():
    for count in (0, 1, 2, 1001):
        assert sorted(permutation(count, 1, 2).tolist()) == list(range(count))


def test_streams_differ_by_seed_epoch_and_purpose():
    streams = [
        draws(4, *which).tolist() for which in [(0, 0), (0, 1), (1, 0), (0, 0, 1), (2**64 - 1, 0)]
    ]
    assert len({tuple(stream) for stream in streams}) == 5
    assert draws(8, 5, 5)[:3].tolist() == draws(3, 5, 5).tolist()


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_rejects_seed_out_of_range(seed):
    with pytest.raises(
        ValueError, match=f"the seed is {seed}, but it must be from 0 to 18446744073709551615"
    ):
        draws(1, seed, 0)


def test_does_not_touch_global_generators():
    np.random.seed(3)
    random.seed(3)
    before = np.random.get_state()[1].tolist(), random.getstate()
    permutation(100, 0, 0)
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before
