"""Bits after every 100 KB of a text, which show how they fall while a model learns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

STEP = 100_000  # bytes
Points = Sequence[tuple[int, float]]  # bytes read, and bits of all of them


class Curve:
    """Records the bits so far after every 100 KB.

    Streams are coded side by side, so the bytes read follow from the share of tokens.
    """

    def __init__(self, size: int, tokens: int) -> None:
        self.size, self.tokens = size, tokens
        self.points: list[tuple[int, float]] = []

    def __call__(self, tokens: int, bits: float) -> None:
        read = self.size * min(tokens, self.tokens) // max(1, self.tokens)
        if read // STEP > (self.points[-1][0] // STEP if self.points else 0):
            self.points.append((read, bits))


def bits_by_part(points: Points) -> Iterator[str]:
    """A line for each part between two points, with its bits per byte."""
    before, bits = 0, 0.0
    for place, total in points:
        yield f"{before:12,} to {place:12,} bytes: {(total - bits) / (place - before):.4f} bits"
        before, bits = place, total
