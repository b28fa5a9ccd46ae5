"""Child processes, forked from a process that has imported torch already.

Importing torch takes longer than most checks. So multiprocessing's forkserver imports everything
once, and each child is forked from it before it has any thread.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from clearformer.selftest.command_runner import command

MODULES = ("clearformer.cli.main", "clearformer.selftest.preloaded")
TIMEOUT = 120.0  # seconds


class Missed(Exception):  # noqa: N818 - it is the result of a check, not an error
    """A goal was not reached, with the reason."""


class Skipped(Exception):  # noqa: N818
    """A goal cannot be checked here, with the reason."""


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise Missed(sentence)


class Child:
    """A `clearformer` command in a child process."""

    def __init__(self, arguments: list[str], log: Path, environment: dict[str, str]) -> None:
        self.log = log
        log.unlink(missing_ok=True)
        self.process = _context().Process(target=_command, args=(arguments, log, environment))
        self.process.start()

    def alive(self) -> bool:
        return self.process.is_alive()

    def send(self, which: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, which)

    def wait(self, seconds: float = TIMEOUT) -> int:
        """The exit code, or minus the signal that ended it."""
        self.process.join(seconds)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
            raise Missed(f"a command did not end in {seconds:.0f} s: {self.output()[-300:]}")
        self.process.close()
        return code

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(MODULES))
    return context


def call(function: Callable[..., Any], *arguments: Any, seconds: float = TIMEOUT) -> Any:
    """The result of a function in a child process."""
    context = _context()
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(function, arguments, there))
    process.start()
    there.close()
    try:
        if not here.poll(seconds):
            raise Missed(f"{function.__name__} did not end in {seconds:.0f} s")
        kind, value = here.recv()
    except EOFError:
        raise Missed(f"{function.__name__} ended with {process.exitcode} and no result") from None
    finally:
        process.kill()
        process.join()
    if kind == "missed":
        raise Missed(value)
    return value


def peak_memory() -> int:
    """The peak memory of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise Skipped("this system does not report the peak memory of a process")


def _command(arguments: list[str], log: Path, environment: dict[str, str]) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.environ.update(environment)
    try:
        command(arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _send_result(
    function: Callable[..., Any], arguments: tuple[Any, ...], there: Connection
) -> None:
    try:
        there.send(("value", function(*arguments)))
    except Missed as missed:
        there.send(("missed", str(missed)))
