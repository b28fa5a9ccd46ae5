"""The store at which ranks meet, and what they tell each other there besides tensors.

Who belongs to this start, and who is still alive.
"""

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
PULSE_SECONDS = 1.0  # between two signs of life
ASKED = "who is alive?"
LONGEST_MEETING = 300.0  # a machine may take minutes to import torch from a network drive


def open_store(environment: Mapping[str, str], rank: int, world: int, wait: timedelta) -> Store:
    """The file that our launcher names, or else the store that torchrun's variables name.

    A file listens nowhere, and the file system says who may use it. What torchrun opens listens on
    every interface.
    """
    from torch._C._distributed_c10d import FileStore  # absent where torch lacks all of it
    from torch.distributed.rendezvous import rendezvous

    if STORE not in environment:
        store: Store = next(rendezvous("env://", rank, world, timeout=wait))[0]
        return store
    store = FileStore(environment[STORE], world)
    store.set_timeout(wait)
    return store


def meet(store: Store, rank: int, world: int, seconds: float) -> str:
    """A word that the ranks of this start share, and that no earlier start knew.

    torchrun keeps its store when it starts workers again, with everything in it: a rank that
    is early would find the address of a process that is dead. So each rank brings a word of its
    own, and rank 0 reads the words aloud until everybody has heard his own.
    """
    own = secrets.token_hex(8)
    store.set(f"word {rank}", own)
    told: list[str | None] = []
    until = time.monotonic() + max(seconds, LONGEST_MEETING)
    while time.monotonic() < until:
        if rank == 0:
            words = [_word(store, f"word {each}") for each in range(world)]
            if words != told:  # a file grows with every word
                store.set("roll", json.dumps(words))
                told = words
            heard = [_word(store, f"heard {each}") for each in range(1, world)]
            if all(each == own for each in heard):
                return own
        else:
            roll = json.loads(_word(store, "roll") or "[]")
            if rank < len(roll) and roll[rank] == own:
                store.set(f"heard {rank}", roll[0])
                return str(roll[0])
        time.sleep(0.02)
    raise ValueError(f"rank {rank} waited in vain for the other {world - 1} ranks to start")


def _word(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None


class Pulse:
    """Signs of life with the step, when a rank asks for them, so that one that hangs is named.

    Nobody gives one unasked: the store may be a file, which would grow as long as the run lasts.
    """

    def __init__(self, store: Store, rank: int) -> None:
        self.store = store
        self.rank = rank
        self.step = 0
        self._beats = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def silent(self, world: int) -> str:
        """Who gives no sign of life, or else who is behind, in words."""
        try:
            self.store.set(ASKED, "yes")
            time.sleep(2.5 * PULSE_SECONDS)
            before = [self._heard(rank) for rank in range(world)]
            time.sleep(2.5 * PULSE_SECONDS)
            now = [self._heard(rank) for rank in range(world)]
        except RuntimeError:
            return "a rank whose rendezvous no longer answers"
        others = [rank for rank in range(world) if rank != self.rank]  # who asks is alive
        hung = [rank for rank in others if before[rank][0] == now[rank][0]]
        slowest = min(step for _, step in now)
        behind = [rank for rank in range(world) if now[rank][1] == slowest]
        if hung:
            return f"{_ranks(hung)}, silent since step {now[hung[0]][1]}"
        if len(behind) < world:
            return f"{_ranks(behind)}, still at step {slowest}"
        return f"another rank at step {slowest}: all are alive, the network may be slow"

    def stop(self) -> None:
        self._over.set()
        self._thread.join(timeout=5 * PULSE_SECONDS)

    def _go_on(self) -> None:
        while not self._over.wait(PULSE_SECONDS):
            try:
                if self.store.check([ASKED]):
                    self._beat()
            except RuntimeError:
                return  # the store is gone; training notices by itself

    def _beat(self) -> None:
        self._beats += 1
        self.store.set(f"pulse {self.rank}", f"{self._beats} {self.step}")

    def _heard(self, rank: int) -> tuple[int, int]:
        """The number of its signs of life, and its step: ours, if it never gave one."""
        if not self.store.check([f"pulse {rank}"]):
            return 0, self.step
        beats, step = self.store.get(f"pulse {rank}").decode().split()
        return int(beats), int(step)


def _ranks(ranks: Sequence[int]) -> str:
    names = ", ".join(map(str, ranks))
    return f"rank {names}" if len(ranks) == 1 else f"ranks {names}"
