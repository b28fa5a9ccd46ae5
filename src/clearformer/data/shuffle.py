"""Chance that is the same everywhere: a function of (seed, epoch), not of history.

The raw 64-bit stream of Philox is a published function and guaranteed not to change between
versions of NumPy; `permutation` and `shuffle` are not. The global generators are never used.
"""

import numpy as np
from numpy.typing import NDArray

LARGEST_SEED = 2**64 - 1


def draws(count: int, seed: int, epoch: int, purpose: int = 0) -> NDArray[np.uint64]:
    """Raw random numbers of 64 bits; another `purpose` has a stream of its own."""
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"the seed is {seed}, but it must be from 0 to {LARGEST_SEED}")
    # The purpose is the counter's highest word: no stream is long enough to run into the next.
    counter = np.array([0, 0, 0, purpose], dtype=np.uint64)
    key = np.array([seed, epoch], dtype=np.uint64)
    raw: NDArray[np.uint64] = np.random.Philox(counter=counter, key=key).random_raw(count)
    return raw


def permutation(count: int, seed: int, epoch: int, purpose: int = 0) -> NDArray[np.int64]:
    """The numbers 0 to `count` - 1 in an order of their own for each (seed, epoch)."""
    order: NDArray[np.int64] = np.argsort(draws(count, seed, epoch, purpose), kind="stable")
    return order
