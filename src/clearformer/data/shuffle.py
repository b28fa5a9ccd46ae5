"""Reproducible random numbers: a function of (seed, epoch), without state.

NumPy guarantees that the raw 64-bit stream of Philox does not change between versions; it does not
for `permutation` and `shuffle`. The global generators are never used.
"""

import numpy as np
from numpy.typing import NDArray

MAX_SEED = 2**64 - 1


def draws(count: int, seed: int, epoch: int, purpose: int = 0) -> NDArray[np.uint64]:
    """Raw 64-bit random numbers; every `purpose` has its own stream."""
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"the seed is {seed}, but it must be from 0 to {MAX_SEED}")
    # The purpose is the highest word of the counter: no stream is long enough to reach the next.
    counter = np.array([0, 0, 0, purpose], dtype=np.uint64)
    key = np.array([seed, epoch], dtype=np.uint64)
    raw: NDArray[np.uint64] = np.random.Philox(counter=counter, key=key).random_raw(count)
    return raw


def permutation(count: int, seed: int, epoch: int, purpose: int = 0) -> NDArray[np.int64]:
    """The numbers 0 to `count` - 1 in a random order for each (seed, epoch)."""
    order: NDArray[np.int64] = np.argsort(draws(count, seed, epoch, purpose), kind="stable")
    return order


def epoch_of(step: int, steps_per_epoch: int) -> tuple[int, int]:
    """The epoch of a step, and its index in that epoch."""
    if step < 0:
        raise ValueError(f"the step is {step}, but steps are counted from 0")
    return divmod(step, steps_per_epoch)
