"""Chance as a published function of (seed, epoch)."""

import random

import numpy as np
import pytest

from clearformer.data.shuffle import draws, permutation


def test_the_stream_is_that_of_philox():
    """Fixed numbers: another order of samples would break every run that is resumed."""
    assert draws(3, 0, 0).tolist() == [
        1609722158698636785,
        9632415352606990290,
        17434459829111350137,
    ]
    assert permutation(10, seed=0, epoch=0).tolist() == [5, 4, 3, 0, 7, 1, 8, 9, 6, 2]
    assert permutation(10, seed=7, epoch=3).tolist() == [5, 3, 6, 8, 7, 4, 0, 1, 2, 9]


def test_every_number_once():
    for count in (0, 1, 2, 1001):
        assert sorted(permutation(count, 1, 2).tolist()) == list(range(count))


def test_seed_epoch_and_purpose_each_have_their_own():
    streams = [
        draws(4, *which).tolist() for which in [(0, 0), (0, 1), (1, 0), (0, 0, 1), (2**64 - 1, 0)]
    ]
    assert len({tuple(stream) for stream in streams}) == 5
    assert draws(8, 5, 5)[:3].tolist() == draws(3, 5, 5).tolist()


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range(seed):
    with pytest.raises(
        ValueError, match=f"the seed is {seed}, but it must be from 0 to 18446744073709551615"
    ):
        draws(1, seed, 0)


def test_global_generators_are_left_alone():
    np.random.seed(3)
    random.seed(3)
    before = np.random.get_state()[1].tolist(), random.getstate()
    permutation(100, 0, 0)
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before
