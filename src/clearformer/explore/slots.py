"""Slots for work that goes on at the same time, so that one kind cannot take the whole server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clearformer.explore.errors import Problem


class Slots:
    """At most `limit` at once; a Problem (429) for one more. To be used on the event loop."""

    def __init__(self, limit: int, what: str) -> None:
        self.limit = limit
        self.what = what
        self.in_use = 0

    def require(self) -> None:
        """Raise the Problem if none is free, before any work is done."""
        if self.in_use >= self.limit:
            raise Problem(
                429,
                "busy",
                f"{self.limit} {self.what} already",
                hint="try again in a moment",
                limit=self.limit,
            )

    @contextmanager
    def taken(self) -> Iterator[None]:
        self.require()
        self.in_use += 1
        try:
            yield
        finally:
            self.in_use -= 1
