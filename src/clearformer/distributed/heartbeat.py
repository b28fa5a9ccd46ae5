"""Store, rendezvous token and heartbeats of the ranks of a run."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

STORE = "CLEARFORMER_STORE"  # the file of the ranks that `--processes` starts
HEARTBEAT_SECONDS = 1.0  # between two heartbeats
REQUESTED = "heartbeats requested"
RENDEZVOUS_SECONDS = 300.0  # importing torch from a network drive may take minutes


def open_store(
    environment: Mapping[str, str], rank: int, world_size: int, timeout: timedelta
) -> Store:
    """Open the file that our launcher names, or else the store that torchrun's variables name.

    A file needs no open port, and its permissions say who may use it. torchrun's store listens on
    every interface.
    """
    from torch._C._distributed_c10d import FileStore  # absent where torch lacks all of it
    from torch.distributed.rendezvous import rendezvous

    if STORE not in environment:
        store: Store = next(rendezvous("env://", rank, world_size, timeout=timeout))[0]
        return store
    store = FileStore(environment[STORE], world_size)
    store.set_timeout(timeout)
    return store


def agree_on_token(store: Store, rank: int, world_size: int, seconds: float) -> str:
    """Return a token that the ranks of this start share and that no earlier start used.

    torchrun keeps its store and all keys in it when it restarts workers, so that an early rank
    could read the address of a dead process. Each rank therefore writes a random token; rank 0
    publishes the list until every rank has found its own token in it.
    """
    token = secrets.token_hex(8)
    store.set(f"token {rank}", token)
    published: list[str | None] = []
    deadline = time.monotonic() + max(seconds, RENDEZVOUS_SECONDS)
    while time.monotonic() < deadline:
        if rank == 0:
            tokens = [_get(store, f"token {each}") for each in range(world_size)]
            if tokens != published:  # a file store grows with every write
                store.set("tokens", json.dumps(tokens))
                published = tokens
            confirmed = [_get(store, f"confirmed {each}") for each in range(1, world_size)]
            if all(each == token for each in confirmed):
                return token
        else:
            tokens = json.loads(_get(store, "tokens") or "[]")
            if rank < len(tokens) and tokens[rank] == token:
                store.set(f"confirmed {rank}", str(tokens[0]))
                return str(tokens[0])
        time.sleep(0.02)
    raise ValueError(
        f"rank {rank}: timeout while waiting for {world_size - 1} other ranks to start"
    )


def _get(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None


class Heartbeat:
    """Writes this rank's heartbeats and step to the store while a rank requests them.

    Without a request nothing is written: a file store grows with every write.
    """

    def __init__(self, store: Store, rank: int) -> None:
        self.store = store
        self.rank = rank
        self.step = 0
        self._beats = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def describe_stalled(self, world_size: int) -> str:
        """Name the ranks that give no heartbeat, or else those that are behind."""
        try:
            self.store.set(REQUESTED, "yes")
            time.sleep(2.5 * HEARTBEAT_SECONDS)
            before = [self._latest(rank) for rank in range(world_size)]
            time.sleep(2.5 * HEARTBEAT_SECONDS)
            now = [self._latest(rank) for rank in range(world_size)]
        except RuntimeError:
            return "a rank whose rendezvous no longer answers"
        others = [rank for rank in range(world_size) if rank != self.rank]  # this one is alive
        silent = [rank for rank in others if before[rank][0] == now[rank][0]]
        slowest = min(step for _, step in now)
        behind = [rank for rank in range(world_size) if now[rank][1] == slowest]
        if silent:
            return f"{_names(silent)}, silent since step {now[silent[0]][1]}"
        if len(behind) < world_size:
            return f"{_names(behind)}, still at step {slowest}"
        return f"another rank at step {slowest}: all are alive, the network may be slow"

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=5 * HEARTBEAT_SECONDS)

    def _run(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            try:
                if self.store.check([REQUESTED]):
                    self._beat()
            except RuntimeError:
                return  # the store is gone; training notices by itself

    def _beat(self) -> None:
        self._beats += 1
        self.store.set(f"heartbeat {self.rank}", f"{self._beats} {self.step}")

    def _latest(self, rank: int) -> tuple[int, int]:
        """A rank's number of heartbeats and its step; without a heartbeat, this rank's step."""
        if not self.store.check([f"heartbeat {rank}"]):
            return 0, self.step
        beats, step = self.store.get(f"heartbeat {rank}").decode().split()
        return int(beats), int(step)


def _names(ranks: Sequence[int]) -> str:
    names = ", ".join(map(str, ranks))
    return f"rank {names}" if len(ranks) == 1 else f"ranks {names}"
