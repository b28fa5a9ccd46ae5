"""Limits on concurrent operations."""

import pytest

from clearformer.http_server.concurrency_limit import ConcurrencyLimit
from clearformer.http_server.errors import Problem


def test_rejects_more_than_limit():
    slots = ConcurrencyLimit(2, "files are being made")
    with slots.acquire(), slots.acquire():
        with pytest.raises(Problem, match="2 files are being made already") as refusal:
            slots.require()
        assert (refusal.value.status, refusal.value.body["error"]["limit"]) == (429, 2)
        with pytest.raises(Problem), slots.acquire():
            pass
    slots.require()


def test_slot_is_released_after_failure():
    slots = ConcurrencyLimit(1, "x")
    with pytest.raises(ZeroDivisionError), slots.acquire():
        raise ZeroDivisionError
    assert slots.in_use == 0
