"""Counts of which tokens followed the last 1 to N tokens, as probabilities.

Both sides of a file count what they have coded so far, so that nothing is shipped. Tables hold
integers, and probabilities come from them by elementwise + - * / in float64, which IEEE 754 fixes.
Streams share the tables: what one of them reads helps all others one step later.

A context of n tokens has a row in the table of order n. Where all contexts and tokens fit into
2^24 numbers (orders 1 and 2 of bytes), the row has a count for every token. Otherwise it is found
by a hash and has `SLOTS` of them: the newest context takes the row, the newest token the slot with
the smallest count.

Axes: S streams, V vocabulary, D dense and H hashed orders, K slots.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clearformer.inference.entropy_coder import Ids

MAX_ORDER = 8
DENSE = 2**24  # numbers in the table of an order that has all contexts
ROW_BITS, SLOTS = 20, 8  # rows and slots of a hashed order
FULL = 2**16 - 1  # a dense row is halved before it counts further
PRIME, MIX = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
DENSE_DISCOUNT, DENSE_RESERVE = 0.4, 0.01
DISCOUNT, RESERVE = 0.5, 0.3
SETS = (MAX_ORDER + 1) * 16  # of `Counts.confidence`

Probabilities = NDArray[np.float64]


class Counts:
    """Counts of S streams over a vocabulary, for contexts of 1 to `orders` tokens."""

    def __init__(self, orders: int, streams: int, vocabulary: int) -> None:
        dense = sum(vocabulary ** (n + 1) <= DENSE for n in range(1, orders + 1))
        self.vocabulary, self.orders = vocabulary, orders
        self.dense = [np.zeros((vocabulary**n, vocabulary), np.uint16) for n in range(1, dense + 1)]
        hashed, rows = orders - dense, 1 << ROW_BITS
        kind = np.min_scalar_type(vocabulary - 1)
        self.tokens = np.zeros((hashed, rows, SLOTS), kind)
        self.counts = np.zeros((hashed, rows, SLOTS), np.uint8)
        self.checks = np.zeros((hashed, rows), np.uint16)  # 0: an empty row
        self.last = np.zeros((streams, orders), np.uint64)  # the newest token first
        self.powers = np.cumprod(np.full(orders, PRIME, np.uint64))
        self.streams = np.arange(streams)
        self.tables = np.arange(hashed)[:, None]
        self._find()

    def _find(self) -> None:
        """The rows of the current contexts in all tables."""
        last = self.last.astype(np.int64)
        self.dense_rows = []
        row = np.zeros(len(last), np.int64)
        for n in range(len(self.dense)):
            row = row + last[:, n] * self.vocabulary**n
            self.dense_rows.append(row)
        sums = np.cumsum((self.last + np.uint64(1)) * self.powers, axis=1)  # modulo 2^64
        hashes = sums[:, len(self.dense) :].T  # (H, S)
        hashes = (hashes ^ (hashes >> np.uint64(31))) * np.uint64(MIX)
        self.rows = (hashes >> np.uint64(64 - ROW_BITS)).astype(np.int64)
        self.found_checks = (hashes >> np.uint64(8)).astype(np.uint16) | np.uint16(1)
        known = self.checks[self.tables, self.rows] == self.found_checks
        self.known = known.sum(axis=0)  # (S,): hashed orders that have seen this context
        self.found_tokens = self.tokens[self.tables, self.rows]  # (H, S, K)
        self.found = self.counts[self.tables, self.rows] * known[..., None]

    @property
    def confidence(self) -> Ids:
        """Which weights a mixture uses (S,): by the longest known context, how often it was seen
        and by how many tokens it was followed."""
        if not len(self.found):
            return np.zeros(len(self.streams), np.int64)
        longest = self.found[np.maximum(self.known - 1, 0), self.streams]  # (S, K)
        seen = np.minimum(longest.sum(axis=1, dtype=np.int64) // 2, 3)
        return self.known * 16 + np.minimum((longest > 0).sum(axis=1), 3) * 4 + seen

    def probabilities(self) -> Probabilities:
        """Of the next tokens (N, S, V), by each order: what it has not seen is left to the one
        below (absolute discounting)."""
        out = np.empty((self.orders, len(self.streams), self.vocabulary))
        below = np.full(out.shape[1:], 1 / self.vocabulary)
        for n, (table, rows) in enumerate(zip(self.dense, self.dense_rows, strict=True)):
            counts = table[rows].astype(np.float64)
            kept = np.maximum(counts - DENSE_DISCOUNT, 0)
            total = counts.sum(axis=1, keepdims=True) + DENSE_RESERVE
            left = DENSE_DISCOUNT * (counts > 0).sum(axis=1, keepdims=True) + DENSE_RESERVE
            below = out[n] = (kept + left * below) / total
        counts = self.found.astype(np.float64)
        total = counts.sum(axis=2, keepdims=True) + RESERVE
        left = (DISCOUNT * (counts > 0).sum(axis=2, keepdims=True) + RESERVE) / total
        kept = np.maximum(counts - DISCOUNT, 0) / total
        for n in range(len(counts)):
            at = out[len(self.dense) + n]
            np.multiply(below, left[n], out=at)
            # Unused slots have token 0 and add nothing.
            np.add.at(at, (self.streams[:, None], self.found_tokens[n]), kept[n])
            below = at
        return out

    def update(self, tokens: Ids) -> None:
        """Count the next tokens (S,) and move on."""
        for table, rows in zip(self.dense, self.dense_rows, strict=True):
            full = rows[table[rows, tokens] >= FULL - len(tokens)]
            table[full] //= 2
            np.add.at(table, (rows, tokens), 1)
        counts, found = self.found, self.found_tokens
        same = (found == tokens[None, :, None]) & (counts > 0)  # (H, S, K)
        slot = np.where(same.any(axis=2), same.argmax(axis=2), counts.argmin(axis=2))[..., None]
        before = np.where(same.any(axis=2), np.take_along_axis(counts, slot, 2)[..., 0], 0)
        # What did not follow this time counts less: the recent past predicts better.
        counts = np.where(same | (counts <= 2), counts, counts - (counts >> 2))
        new = np.minimum(before.astype(np.int64) + 1, 255).astype(np.uint8)
        np.put_along_axis(counts, slot, new[..., None], 2)
        np.put_along_axis(found, slot, tokens.astype(found.dtype)[None, :, None], 2)
        # Streams with the same row write one after the other, so that the last one stays.
        self.counts[self.tables, self.rows] = counts
        self.tokens[self.tables, self.rows] = found
        self.checks[self.tables, self.rows] = self.found_checks
        self.last[:, 1:] = self.last[:, :-1].copy()
        self.last[:, 0] = tokens
        self._find()
