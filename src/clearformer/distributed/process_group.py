"""Process group of a run: a single process, or the ranks of `--processes` or torchrun.

`ProcessGroup` is a group of one, in which every collective is the identity; `DistributedGroup`
has the same methods for several processes, so that training code needs no branch. Rank 0, the
main process, alone reads and writes the run folder and prints. Its results and errors are
broadcast, so that all ranks continue or all end. Ranks exchange JSON and tensors, never pickles.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from clearformer.distributed.heartbeat import Heartbeat, agree_on_token, open_store

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

Result = TypeVar("Result")
LINGER_SECONDS = 2.0  # that the main process stays after a failure, at most
PREPARE_TIMEOUT = timedelta(days=1)  # tokenizing on the main process may take hours
# Messages of gloo about a peer that ended, and about one that does not answer.
DISCONNECTED = (
    "closed by peer",
    "reset by peer",
    "Broken pipe",
    "Connection refused",
    "Socket closed",
)
TIMED_OUT = ("Timed out", "timed out", "timeout")


class ProcessGroup:
    """A single process: every collective is the identity."""

    rank = 0
    world_size = 1
    restarts = 0

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def threads(self) -> int:
        """Default number of CPU threads of this process."""
        return torch.get_num_threads()

    def device(self, device: torch.device) -> torch.device:
        return device

    def on_main(self, act: Callable[[], Any]) -> Any:
        """Call `act` on the main process; every rank returns its result, or raises its error."""
        return act()

    def main_first(self, act: Callable[[Any], Result], share: Callable[[Result], Any]) -> Result:
        """Call `act` on every rank: the main process, then one rank per machine, then the rest.

        `act` gets None on the main process; elsewhere `share` of the main process's result.
        """
        return act(None)

    def broadcast(self, value: Any) -> Any:
        """The main process's value, on every rank."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in order of rank."""
        return [value]

    def max(self, values: Sequence[float]) -> list[float]:
        """The element-wise maximum over the ranks."""
        return list(values)

    def mean(self, value: Tensor) -> Tensor:
        """The mean over the ranks."""
        return value

    def stack(self, value: Tensor) -> Tensor:
        """The tensors of all ranks, stacked: (world_size, ...)."""
        return value[None]

    def report_step(self, step: int) -> None:
        """Publish the step of this rank for the heartbeat."""

    @property
    def orphaned(self) -> bool:
        """Whether the process that launched this one is gone."""
        return False

    def explain(self, problem: Exception) -> str | None:
        """A sentence about the problem if another rank caused it, else None."""
        return None

    def first_to_report(self, sentence: str) -> bool:
        """Whether no other rank has reported this sentence: each error is printed once."""
        return True

    def exit(self, code: int, say: Callable[[str], None] = lambda sentence: None) -> None:
        """Exit the process."""
        sys.exit(code)


SINGLE_PROCESS = ProcessGroup()


@dataclass(frozen=True)
class Machine:
    """The machine of a rank."""

    local_rank: int
    ranks: int  # on this machine
    number: int


class DistributedGroup(ProcessGroup):
    """One of several processes, each with its share of every batch."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        machine: Machine,
        restarts: int,
        timeout: float,
        store: Store,
    ) -> None:
        """Join the group; a rank that keeps the others waiting for `timeout` seconds ends it."""
        from torch._C._distributed_c10d import PrefixStore  # absent where torch lacks all of it

        self.parent = os.getppid()
        self.rank = rank
        self.world_size = world_size
        self.machine = machine
        self.restarts = restarts
        self.timeout = timeout
        self.turns = 0
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        self.store = PrefixStore(agree_on_token(store, rank, world_size, timeout), store)
        dist.init_process_group(
            backend,
            store=PrefixStore("group", self.store),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeout),
        )
        self.heartbeat = Heartbeat(self.store, rank)

    @property
    def threads(self) -> int:
        # torch.get_num_threads() is 1 under torchrun, which sets OMP_NUM_THREADS.
        return max(1, (os.cpu_count() or 1) // self.machine.ranks)

    def device(self, device: torch.device) -> torch.device:
        if device == torch.device("cuda"):
            device = torch.device("cuda", self.machine.local_rank)
            torch.cuda.set_device(device)
        return device

    def on_main(self, act: Callable[[], Any]) -> Any:
        outcome = None
        if self.is_main:
            try:
                outcome = {"result": act()}
            except Exception as problem:
                self.broadcast({"problem": str(problem)})
                raise
        outcome = self.broadcast(outcome)
        if "problem" in outcome:
            raise ValueError(outcome["problem"])
        return outcome["result"]

    def main_first(self, act: Callable[[Any], Result], share: Callable[[Result], Any]) -> Result:
        # Through the store: a collective would time out, since this may take long.
        self.turns += 1
        main = f"turn {self.turns}: main process"
        machine = f"turn {self.turns}: machine {self.machine.number}"
        shared = None if self.is_main else self._await(main)
        if not self.is_main and self.machine.local_rank != 0:
            self._await(machine)
        keys = [main] * self.is_main + [machine] * (self.machine.local_rank == 0)
        try:
            result = act(shared)
            outcome = {"result": share(result) if self.is_main else None}
        except Exception as problem:
            outcome = {"problem": str(problem)}
            raise
        finally:
            for key in keys:
                self.store.set(key, json.dumps(outcome))
        return result

    def _await(self, key: str) -> Any:
        # Polled, so that a signal is handled meanwhile.
        deadline = time.monotonic() + PREPARE_TIMEOUT.total_seconds()
        while not self.store.check([key]):
            if time.monotonic() > deadline:
                raise ValueError(f"rank {self.rank}: timeout after {PREPARE_TIMEOUT} at {key}")
            time.sleep(0.02)
        outcome = json.loads(self.store.get(key))
        if "problem" in outcome:
            raise ValueError(outcome["problem"])
        return outcome["result"]

    def broadcast(self, value: Any) -> Any:
        data = as_bytes(value) if self.is_main else torch.empty(0, dtype=torch.uint8)
        size = torch.tensor([len(data)])
        dist.broadcast(size, 0)
        data = data if self.is_main else torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(data, 0)
        return from_bytes(data)

    def gather(self, value: Any) -> list[Any]:
        data = as_bytes(value)
        sizes = self.stack(torch.tensor(len(data)))  # (world_size,)
        padded = torch.zeros(int(sizes.max()), dtype=torch.uint8)
        padded[: len(data)] = data
        return [
            from_bytes(row[:size])
            for row, size in zip(self.stack(padded), sizes.tolist(), strict=True)
        ]

    def max(self, values: Sequence[float]) -> list[float]:
        largest = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return largest.tolist()

    def mean(self, value: Tensor) -> Tensor:
        total = value.double()
        dist.all_reduce(total)
        return (total / self.world_size).to(value.dtype)

    def stack(self, value: Tensor) -> Tensor:
        tensors = [torch.empty_like(value) for _ in range(self.world_size)]
        dist.all_gather(tensors, value.contiguous())
        return torch.stack(tensors)

    def report_step(self, step: int) -> None:
        self.heartbeat.step = step

    @property
    def orphaned(self) -> bool:
        return os.getppid() != self.parent

    def explain(self, problem: Exception) -> str | None:
        if not isinstance(problem, RuntimeError):
            return None
        text = str(problem)
        after = "saved checkpoints are kept: continue with --resume"
        if any(word in text for word in TIMED_OUT):
            stalled = self.heartbeat.describe_stalled(self.world_size)
            return f"waited {self.timeout:g} s for {stalled}; {after}"
        if any(word in text for word in DISCONNECTED):
            return f"another rank has ended; {after}"
        return None

    def first_to_report(self, sentence: str) -> bool:
        key = hashlib.sha256(sentence.encode()).hexdigest()
        first = self.is_main
        try:
            first = self.store.add(key, 1) == 1
            self.store.add("asked", 1)
            # The store may live in the main process: it stays until the others have asked too.
            deadline = time.monotonic() + LINGER_SECONDS
            while self.is_main and self.store.add("asked", 0) < self.world_size:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
        except RuntimeError:
            pass  # the store is gone
        return first

    def exit(self, code: int, say: Callable[[str], None] = lambda sentence: None) -> None:
        """Exit the process; after success, once all ranks have reached this point.

        Destroying a process group while a model or another rank still uses it now and then aborts
        a process that had succeeded, so the caller must have released model and optimizer. After
        a failure there is no barrier. `say` reports a rank that is gone.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        self.heartbeat.stop()
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


def join(environment: Mapping[str, str], timeout: float) -> ProcessGroup:
    """Join the group of a launcher, by its environment variables; without them, a group of one."""
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return ProcessGroup()

    def number(name: str, default: int) -> int:
        return int(environment.get(name, default))

    rank, world_size = number("RANK", 0), number("WORLD_SIZE", 1)
    machine = Machine(
        number("LOCAL_RANK", rank), number("LOCAL_WORLD_SIZE", world_size), number("GROUP_RANK", 0)
    )
    restarts = number("TORCHELASTIC_RESTART_COUNT", 0)
    store = open_store(environment, rank, world_size, PREPARE_TIMEOUT)
    return DistributedGroup(rank, world_size, machine, restarts, timeout, store)


def as_bytes(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def from_bytes(data: Tensor) -> Any:
    return json.loads(bytes(data.numpy()))
