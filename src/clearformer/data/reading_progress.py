"""Progress while the rows of a table are read: whoever listens is told how many there are so far.

A listener is set for a block of code, so that a reader deep inside needs no parameter for it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

EVERY = 20_000  # rows between two calls of a listener
LINE_EVERY = 500_000  # rows between two lines of a log

# The name of the table, its rows so far, and whether all have been read.
Listener = Callable[[str, int, bool], None]
Item = TypeVar("Item")

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener, *, unless_set: bool = False) -> Iterator[None]:
    """Call `listener` for the tables that are read in this block."""
    if unless_set and _listener.get() is not None:
        yield
        return
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def counted(name: str, rows: Iterable[Item]) -> Iterator[Item]:
    """The same rows; the listener hears of every 20,000, and of the end of a larger table."""
    count = 0
    for row in rows:
        yield row
        count += 1
        if count % EVERY == 0 and (listener := _listener.get()) is not None:
            listener(name, count, False)
    if count >= EVERY and (listener := _listener.get()) is not None:
        listener(name, count, True)


def as_lines(say: Callable[[str], None]) -> Listener:
    """A listener for a log: a line for every 500,000 rows, and none for smaller tables."""

    def listener(name: str, count: int, done: bool) -> None:
        if not done and count % LINE_EVERY == 0:
            say(f"reading {name}: {count:,} rows so far")

    return listener
