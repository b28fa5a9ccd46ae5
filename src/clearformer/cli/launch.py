"""Launcher of `--processes N`: N copies of this command on this machine.

The ranks meet at a file in a folder that only their user can open, and exchange tensors over the
loopback interface, so nothing listens to the network. The first rank that fails ends the others,
and its exit code is that of all; `--resume` goes on.

A rank holds one end of a pipe whose other end the launcher holds. It reads from it before torch
is imported, and so notices at any time, and on any system, that the launcher is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from clearformer import limits
from clearformer.cli.output import tell
from clearformer.distributed.heartbeat import STORE
from clearformer.runs import metrics
from clearformer.runs.signals import Signals

LIFELINE = "CLEARFORMER_LIFELINE"  # file descriptor of the rank's end of the pipe
POLL_SECONDS = 0.05  # between two polls of the ranks
LINGER_SECONDS = 10.0  # for a rank to exit by itself, once another has
GRACE_SECONDS = 30.0  # for a rank to exit after SIGTERM, before it is killed


def launch(processes: int, words: Sequence[str], folder: Path) -> int:
    """Run `clearformer WORDS`, which trains in `folder`, in so many processes; the exit code."""
    written = folder / "metrics.jsonl"
    before = _size(written)
    with Signals() as signals, Ranks(signals) as ranks:
        ranks.start(processes, words)
        rank, code = ranks.first_failure()
        passed_on = -code in signals.received
        ranks.end()
    if code >= 0:
        return code
    if not passed_on:
        _say_killed(rank, -code)
        if _size(written) > before:  # otherwise it was not training yet
            _record_killed(written, rank, 128 - code)
    return 128 - code


def starts_processes(processes: int | None, environment: Mapping[str, str]) -> bool:
    """Whether this process is the launcher, and not one of the processes that were started."""
    if processes is None:
        return False
    if processes < 1:
        raise ValueError(f"--processes is {processes}, but it must be at least 1")
    cores = os.cpu_count() or 1
    most = min(limits.MAX_PROCESSES, max(8, 4 * cores))
    if processes > most:
        raise ValueError(
            f"--processes is {processes!r:.60}, but this machine with {cores} cores supports at "
            f"most {most}: start fewer"
        )
    started = environment.get("WORLD_SIZE")
    if started not in (None, str(processes)):
        raise ValueError(
            f"torchrun has started {started} processes, but --processes says {processes}: leave it "
            f"out"
        )
    return started is None


def watch_launcher(environment: MutableMapping[str, str]) -> None:
    """In a rank: raise SIGTERM once the launcher is gone."""
    pipe = environment.pop(LIFELINE, None)  # it is not meant for what a rank starts
    if pipe is None:
        return
    descriptor = int(pipe)

    def watch() -> None:
        os.read(descriptor, 1)  # nobody writes: it returns when the launcher's end is closed
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


class Ranks:
    """The processes of a run; all have ended when the context exits."""

    def __init__(self, signals: Signals) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.signals = signals
        self._passed_on = 0  # how many of the signals

    def __enter__(self) -> Ranks:
        with contextlib.ExitStack() as stack:
            # Only its owner can open such a folder.
            place = tempfile.TemporaryDirectory(prefix="clearformer-", ignore_cleanup_errors=True)
            self.store = str(Path(stack.enter_context(place)) / "store")
            self.lifeline, other_end = os.pipe()
            stack.callback(os.close, self.lifeline)
            stack.callback(os.close, other_end)
            stack.callback(self._kill)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def start(self, processes: int, words: Sequence[str]) -> None:
        command = [sys.executable, "-m", "clearformer", *words]
        try:
            for rank in range(processes):
                self.processes.append(
                    subprocess.Popen(
                        command,
                        env=self._environment(rank, processes),
                        pass_fds=(self.lifeline,),
                        # Ctrl-C is for the launcher, which passes it on: once, and not twice.
                        start_new_session=True,
                    )
                )
        except OSError as problem:
            raise ValueError(
                f"{len(self.processes)} of {processes} processes could be started "
                f"({problem.strerror}): ask for fewer with --processes"
            ) from None

    def _environment(self, rank: int, processes: int) -> dict[str, str]:
        loopback = loopback_interface()
        return {
            "TORCH_CPP_LOG_LEVEL": "ERROR",  # no C++ stack traces when another rank has ended
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "GROUP_RANK": "0",
            STORE: self.store,
            LIFELINE: str(self.lifeline),
            # The interface on which the ranks listen, overriding the environment.
            "GLOO_SOCKET_IFNAME": loopback,
            "NCCL_SOCKET_IFNAME": loopback,
        }

    def first_failure(self) -> tuple[int, int]:
        """Rank and exit code of the first failure; 0 and 0 once all have succeeded."""
        while True:
            codes = self._poll()
            failed = [(rank, code) for rank, code in enumerate(codes) if code]
            if failed:
                # A killed rank is the cause of failures of others at the same time.
                return min(failed, key=lambda each: each[1] >= 0)
            if None not in codes:
                return 0, 0

    def end(self) -> None:
        """Wait until all have exited; send SIGTERM to those that do not.

        Usually they exit by themselves: ranks agree to stop, and notice a rank that is gone. One
        of them may be about to report why.
        """
        self._wait(LINGER_SECONDS)
        for each in self.processes:
            each.send_signal(signal.SIGTERM)
        self._wait(GRACE_SECONDS)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while None in self._poll() and time.monotonic() < deadline:
            pass

    def _poll(self) -> list[int | None]:
        """Forward signals that were received; the exit codes so far."""
        time.sleep(POLL_SECONDS)
        for number in self.signals.received[self._passed_on :]:
            self._passed_on += 1
            for each in self.processes:
                each.send_signal(number)
        return [each.poll() for each in self.processes]

    def _kill(self) -> None:
        for each in self.processes:
            each.kill()
            each.wait()


def loopback_interface() -> str:
    """Name of the loopback interface: lo on Linux, lo0 on macOS."""
    names = {name for _, name in socket.if_nameindex()}
    return "lo0" if "lo0" in names else "lo"


def _say_killed(rank: int, number: int) -> None:
    why = ", as the system does where memory runs out" if number == signal.SIGKILL else ""
    tell(
        f"clearformer: rank {rank} was killed by signal {number} ({_name(number)}{why}); saved "
        f"checkpoints are kept: continue with --resume"
    )


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"  # a real-time signal


def _record_killed(path: Path, rank: int, code: int) -> None:
    """Record the end of the run, since the rank that writes metrics may have been killed."""
    with contextlib.suppress(OSError, ValueError), metrics.MetricsFile(path) as file:
        step = max((each.get("step", 0) for each in metrics.read(path)), default=0)
        file.append({"event": "end", "step": step, "reason": "killed", "exit": code, "rank": rank})


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
