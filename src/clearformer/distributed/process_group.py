"""Who else takes part in a run: nobody, or other processes that `--processes` or torchrun started.

`Alone` and `Together` answer the same questions, and whoever trains asks without knowing which
one it has: who leads, what do all agree on, what is the mean. Rank 0 leads: it alone reads
the folder, writes and prints; what it found or why it failed is told to all, so that either
every rank goes on or every rank ends. What ranks tell each other is JSON and tensors.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from clearformer.distributed.heartbeat import Pulse, meet, open_store

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

Result = TypeVar("Result")
LAST_WORDS = 2.0  # seconds that the leader stays after a failure, at most
PREPARING = timedelta(days=1)  # the leader may tokenize for hours before all begin
# What gloo says of a peer that ended, and of one that does not answer.
BROKEN = ("closed by peer", "reset by peer", "Broken pipe", "Connection refused", "Socket closed")
LATE = ("Timed out", "timed out", "timeout")


class Alone:
    """One process: nobody to ask, nothing to wait for."""

    rank = 0
    world = 1
    restarts = 0

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def threads(self) -> int:
        """CPU threads for this process, unless it is told."""
        return torch.get_num_threads()

    def device(self, device: torch.device) -> torch.device:
        return device

    def lead(self, act: Callable[[], Any]) -> Any:
        """What the leader's `act` returned, on every rank; or its problem, on every rank."""
        return act()

    @contextmanager
    def leading(self, context: AbstractContextManager[Any]) -> Iterator[None]:
        """Inside a context that the leader alone enters, for all."""
        with ExitStack() as stack:

            def enter() -> None:
                stack.enter_context(context)

            self.lead(enter)
            yield

    def in_turn(self, act: Callable[[Any], Result], tell: Callable[[Result], Any]) -> Result:
        """`act` on every rank: the leader first, then one on each machine, then the others.

        The leader's `act` gets None, the others' what the leader tells of its result.
        """
        return act(None)

    def share(self, value: Any) -> Any:
        """The leader's value, on every rank."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank."""
        return [value]

    def largest(self, values: Sequence[float]) -> list[float]:
        """The largest of each over the ranks."""
        return list(values)

    def mean(self, value: Tensor) -> Tensor:
        return value

    def stacked(self, value: Tensor) -> Tensor:
        """Tensors of one shape by rank: (world, ...)."""
        return value[None]

    def reached(self, step: int) -> None:
        """Let the others know how far this rank is."""

    @property
    def deserted(self) -> bool:
        """Whether the process that started this one, to look after it, is gone."""
        return False

    def explain(self, problem: Exception) -> str | None:
        """In a sentence, if the problem is another rank's."""
        return None

    def first_to_say(self, sentence: str) -> bool:
        """Whether no other rank has said this yet: what all found out is said once."""
        return True

    def leave(self, code: int, say: Callable[[str], None] = lambda sentence: None) -> None:
        """End the process."""
        sys.exit(code)


ALONE = Alone()


class Together(Alone):
    """One of several processes, each with its share of every batch."""

    def __init__(
        self,
        rank: int,
        world: int,
        machine: Mapping[str, int],
        restarts: int,
        seconds: float,
        store: Store,
    ) -> None:
        """`machine` has this rank's place on its machine, the number of ranks there, and the
        number of the machine; a rank that keeps the others waiting for `seconds` ends the job."""
        from torch._C._distributed_c10d import PrefixStore  # absent where torch lacks all of it

        self.parent = os.getppid()
        self.rank = rank
        self.world = world
        self.machine = machine
        self.restarts = restarts
        self.seconds = seconds
        self.turns = 0
        wait = timedelta(seconds=seconds)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        self.store = PrefixStore(meet(store, rank, world, seconds), store)
        group = PrefixStore("group", self.store)
        dist.init_process_group(backend, store=group, rank=rank, world_size=world, timeout=wait)
        self.pulse = Pulse(self.store, rank)

    @property
    def threads(self) -> int:
        # Not what torch takes: torchrun leaves each process a single one.
        return max(1, (os.cpu_count() or 1) // self.machine["ranks"])

    def device(self, device: torch.device) -> torch.device:
        if device == torch.device("cuda"):
            device = torch.device("cuda", self.machine["place"])
            torch.cuda.set_device(device)
        return device

    def lead(self, act: Callable[[], Any]) -> Any:
        outcome = None
        if self.leads:
            try:
                outcome = {"result": act()}
            except Exception as problem:
                self.share({"problem": str(problem)})
                raise
        outcome = self.share(outcome)
        if "problem" in outcome:
            raise ValueError(outcome["problem"])
        return outcome["result"]

    def in_turn(self, act: Callable[[Any], Result], tell: Callable[[Result], Any]) -> Result:
        # By the store and not by a collective: this may take longer than any step.
        self.turns += 1
        leader = f"turn {self.turns}: leader"
        machine = f"turn {self.turns}: machine {self.machine['number']}"
        told = None if self.leads else self._await(leader)
        if not self.leads and self.machine["place"] != 0:
            self._await(machine)
        waited_for = [leader] * self.leads + [machine] * (self.machine["place"] == 0)
        try:
            result = act(told)
            outcome = {"result": tell(result) if self.leads else None}
        except Exception as problem:
            outcome = {"problem": str(problem)}
            raise
        finally:
            for key in waited_for:
                self.store.set(key, json.dumps(outcome))
        return result

    def _await(self, key: str) -> Any:
        # Asked again and again, so that a signal gets through meanwhile.
        until = time.monotonic() + PREPARING.total_seconds()
        while not self.store.check([key]):
            if time.monotonic() > until:
                raise ValueError(f"rank {self.rank} waited {PREPARING} for the {key} in vain")
            time.sleep(0.02)
        outcome = json.loads(self.store.get(key))
        if "problem" in outcome:
            raise ValueError(outcome["problem"])
        return outcome["result"]

    def share(self, value: Any) -> Any:
        words = as_bytes(value) if self.leads else torch.empty(0, dtype=torch.uint8)
        size = torch.tensor([len(words)])
        dist.broadcast(size, 0)
        words = words if self.leads else torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(words, 0)
        return from_bytes(words)

    def gather(self, value: Any) -> list[Any]:
        words = as_bytes(value)
        sizes = self.stacked(torch.tensor(len(words)))  # (world,)
        room = torch.zeros(int(sizes.max()), dtype=torch.uint8)
        room[: len(words)] = words
        return [
            from_bytes(row[:size])
            for row, size in zip(self.stacked(room), sizes.tolist(), strict=True)
        ]

    def largest(self, values: Sequence[float]) -> list[float]:
        found = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found.tolist()

    def mean(self, value: Tensor) -> Tensor:
        total = value.double()
        dist.all_reduce(total)
        return (total / self.world).to(value.dtype)

    def stacked(self, value: Tensor) -> Tensor:
        found = [torch.empty_like(value) for _ in range(self.world)]
        dist.all_gather(found, value.contiguous())
        return torch.stack(found)

    def reached(self, step: int) -> None:
        self.pulse.step = step

    @property
    def deserted(self) -> bool:
        return os.getppid() != self.parent

    def explain(self, problem: Exception) -> str | None:
        if not isinstance(problem, RuntimeError):
            return None
        text = str(problem)
        after = "what was saved is kept: go on with --resume"
        if any(word in text for word in LATE):
            return f"waited {self.seconds:g} s for {self.pulse.silent(self.world)}; {after}"
        if any(word in text for word in BROKEN):
            return f"another rank has ended; {after}"
        return None

    def first_to_say(self, sentence: str) -> bool:
        key = hashlib.sha256(sentence.encode()).hexdigest()
        first = self.leads
        try:
            first = self.store.add(key, 1) == 1
            self.store.add("asked", 1)
            # The store may live in the leader's process: others who have something to say, too,
            # would find it gone.
            until = time.monotonic() + LAST_WORDS
            while self.leads and self.store.add("asked", 0) < self.world:
                if time.monotonic() > until:
                    break
                time.sleep(0.02)
        except RuntimeError:
            pass  # the store is gone, and with it whoever could tell
        return first

    def leave(self, code: int, say: Callable[[str], None] = lambda sentence: None) -> None:
        """End the process; after success only once all ranks are here.

        A process group that is torn down under a living model, or while another rank still
        uses it, now and then aborts a process that had succeeded: whoever calls this has let
        go of model and optimizer. After a failure nobody is waited for. `say` is told if another
        rank is gone.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        self.pulse.stop()
        if 0 < code < 128:
            os._exit(code)
        gc.collect()
        try:
            dist.barrier()
        except RuntimeError as problem:
            say(f"clearformer: {self.explain(problem) or problem}")
            os._exit(2)
        dist.destroy_process_group()
        sys.exit(code)


def join(environment: Mapping[str, str], seconds: float) -> Alone:
    """Take part in what a launcher started, by the variables that it sets; alone without them."""
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return Alone()

    def number(name: str, otherwise: int) -> int:
        return int(environment.get(name, otherwise))

    rank, world = number("RANK", 0), number("WORLD_SIZE", 1)
    machine = {
        "place": number("LOCAL_RANK", rank),
        "ranks": number("LOCAL_WORLD_SIZE", world),
        "number": number("GROUP_RANK", 0),
    }
    restarts = number("TORCHELASTIC_RESTART_COUNT", 0)
    store = open_store(environment, rank, world, PREPARING)
    return Together(rank, world, machine, restarts, seconds, store)


def as_bytes(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def from_bytes(words: Tensor) -> Any:
    return json.loads(bytes(words.numpy()))
