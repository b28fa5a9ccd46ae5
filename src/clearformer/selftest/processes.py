"""Real processes, quickly: forked from one that has imported torch already.

A process that is killed must be a process of its own, and importing torch takes longer than all
that is tested in it. So one clean process imports everything once, and each child is forked
from there (multiprocessing's forkserver), before it has any thread.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from clearformer.selftest.command_runner import command

MODULES = ("clearformer.cli.main", "clearformer.selftest.preloaded")
PATIENCE = 120.0  # seconds until a child counts as hanging


class Missed(Exception):  # noqa: N818 - it is the result of a check, not an error
    """A goal was not reached: why."""


class Skipped(Exception):  # noqa: N818
    """A goal cannot be tried here: why."""


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise Missed(sentence)


class Child:
    """A `clearformer` command in a process of its own."""

    def __init__(self, words: list[str], log: Path, environment: dict[str, str]) -> None:
        self.log = log
        log.unlink(missing_ok=True)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(MODULES))
        self.process = context.Process(target=_command, args=(words, log, environment))
        self.process.start()

    def alive(self) -> bool:
        return self.process.is_alive()

    def send(self, which: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, which)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Its exit code, or minus the signal that ended it."""
        self.process.join(seconds)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
            raise Missed(f"a command did not end in {seconds:.0f} s: {self.said()[-300:]}")
        self.process.close()
        return code

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def run(words: list[str], log: Path, **environment: str) -> tuple[int, str]:
    """A command to its end: its exit code and what it said."""
    child = Child(words, log, environment)
    code = child.wait()
    return code, child.said()


def ask(function: Callable[..., Any], *arguments: Any, seconds: float = PATIENCE) -> Any:
    """What a function of this package returns in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(MODULES))
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(function, arguments, there))
    process.start()
    there.close()
    try:
        if not here.poll(seconds):
            raise Missed(f"{function.__name__} did not end in {seconds:.0f} s")
        kind, value = here.recv()
    except EOFError:
        raise Missed(f"{function.__name__} ended with {process.exitcode} and no answer") from None
    finally:
        process.kill()
        process.join()
    if kind == "missed":
        raise Missed(value)
    return value


def peak_memory() -> int:
    """The most memory that this process has had, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise Skipped("this system does not tell how much memory a process had")


def _command(words: list[str], log: Path, environment: dict[str, str]) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.environ.update(environment)
    try:
        command(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...], there: Connection) -> None:
    try:
        there.send(("value", function(*arguments)))
    except Missed as missed:
        there.send(("missed", str(missed)))
