"""Rendezvous with a stale store, and detection of stalled ranks."""

import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from clearformer.distributed import heartbeat
from clearformer.distributed.heartbeat import Heartbeat, agree_on_token


class Store(dict):
    """The required part of a store, in this process."""

    def set(self, key, value):
        self[key] = value.encode()

    def get(self, key):
        return self[key]

    def check(self, keys):
        return all(key in self for key in keys)


def test_ranks_agree_on_token_despite_stale_store():
    """The store still has the keys of a start that died; rank 0 comes last."""
    store, found = Store(), {}

    def come(rank):
        found[rank] = agree_on_token(store, rank, 3, 30)

    def start():
        found.clear()
        threads = [threading.Thread(target=come, args=(rank,)) for rank in (2, 1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found.values())) == 1
        return found[0]

    assert start() != start()


def test_rendezvous_times_out(monkeypatch):
    monkeypatch.setattr(heartbeat, "RENDEZVOUS_SECONDS", 0.1)
    with pytest.raises(ValueError, match="rank 0: timeout while waiting for 1 other ranks"):
        agree_on_token(Store(), 0, 2, 0.1)


def test_stalled_or_lagging_rank_is_named(monkeypatch):
    monkeypatch.setattr(
        heartbeat, "HEARTBEAT_SECONDS", 3600
    )  # no automatic heartbeats: threads may be late
    store = Store()
    beating = [Heartbeat(store, rank) for rank in range(3)]

    def beat(seconds):
        for each in beating:
            if not each._stopped.is_set():
                each._beat()

    monkeypatch.setattr(heartbeat, "time", SimpleNamespace(sleep=beat))
    try:
        for rank, step in enumerate((20, 19, 20)):
            beating[rank].step = step
        assert beating[0].describe_stalled(3) == "rank 1, still at step 19"
        beating[1].step = 20
        assert beating[0].describe_stalled(3).startswith("another rank at step 20: all are alive")
        beating[2].stop()
        assert beating[0].describe_stalled(3) == "rank 2, silent since step 20"
        # The rank that asks is alive, whatever its own heartbeat.
        beating[0].stop()
        assert beating[0].describe_stalled(3) == "rank 2, silent since step 20"
    finally:
        for each in beating:
            each.stop()


def test_heartbeat_starts_on_request(monkeypatch):
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.01)
    asked = threading.Event()

    class Quiet(Store):
        def check(self, keys):
            found = super().check(keys)
            asked.set()
            return found

    store = Quiet()
    alive = Heartbeat(store, 0)
    assert asked.wait(300)
    assert store == {}  # it has checked, and written nothing
    store.set(heartbeat.REQUESTED, "yes")
    while "heartbeat 0" not in store:
        time.sleep(0.01)
    first = store["heartbeat 0"]
    while store["heartbeat 0"] == first:
        time.sleep(0.01)
    alive.stop()


def test_rank_without_heartbeat_is_silent_since_own_step(monkeypatch):
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.01)
    alive = Heartbeat(Store(), 0)
    alive.step = 7
    assert alive.describe_stalled(2) == "rank 1, silent since step 7"
    alive.stop()


def test_ranks_of_launcher_use_file_store(tmp_path):
    file = tmp_path / "store"
    named = {heartbeat.STORE: str(file)}
    stores = [heartbeat.open_store(named, rank, 2, timedelta(seconds=300)) for rank in range(2)]
    stores[0].set("key", "value")
    assert stores[1].get("key") == b"value"
    assert file.exists()
