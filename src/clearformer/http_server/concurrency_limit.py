"""A limit on work in progress, so that one kind of request cannot occupy the whole server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clearformer.http_server.errors import busy


class ConcurrencyLimit:
    """At most `limit` at once; one more raises a Problem (429). Use it on the event loop only."""

    def __init__(self, limit: int, description: str) -> None:
        self.limit = limit
        self.description = description
        self.in_use = 0

    def require(self) -> None:
        """Raise the Problem if the limit is reached, before any work is done."""
        if self.in_use >= self.limit:
            raise busy(f"{self.limit} {self.description} already", self.limit)

    @contextmanager
    def acquire(self) -> Iterator[None]:
        self.require()
        self.in_use += 1
        try:
            yield
        finally:
            self.in_use -= 1
