"""G12 and G13: runs of several processes."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from clearformer.runs import metrics
from clearformer.selftest.processes import Missed, Skipped, require
from clearformer.selftest.toy_run import ToyRun, end_line, require_same

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LISTENING = "0A"  # the state of a socket in /proc/net/tcp
LOSS = 1e-5
# Muon works in bfloat16, whose last digit depends on how a gradient was added up.
EXACT = "--model.dropout.residual 0 --optimizer adamw --lr 1e-3 --precision float32"


def elastic(place: Path, *, kills: int) -> str:
    """G12: workers killed, and the world changed, and the curve stays what it was."""
    toy = ToyRun(place, 60)
    require(_launched(toy, place / "whole", 2).wait() == 0, "a run of 2 processes did not finish")
    for number in range(kills):
        folder = place / f"killed-{number}"
        launcher = _launched(toy, folder, 2)
        _wait_for_step(launcher, folder, 10)
        os.kill(_workers(launcher.pid)[1], signal.SIGKILL)
        killed = 128 + signal.SIGKILL
        code = launcher.wait()
        require(code == killed, f"kill {number}: left with {code} and not {killed}")
        end = end_line(folder)
        require(end.get("exit") == killed, f"kill {number}: the last line is {end}")
        code = _launched(toy, folder, 2).wait()
        require(code == 0, f"kill {number}: resumed, it left with {code}")
        require_same(folder, place / "whole")
    plain = ToyRun(place, 60, more=EXACT)
    require(_launched(plain, place / "one", 1).wait() == 0, "a run of 1 process did not finish")
    folder = place / "changing"
    for step, world in ((20, 1), (40, 2), (None, 1)):
        launcher = _launched(plain, folder, world)
        if step is not None:
            _wait_for_step(launcher, folder, step)
            (folder / "stop").touch()
        require(launcher.wait() == 0, f"world {world}: left with {launcher.returncode}")
    worst = _loss_difference(folder, place / "one")
    require(worst <= LOSS, f"losses differ by {worst:.1e} after a change of the world")
    return f"{kills} workers killed, bitwise; 1 to 2 to 1 processes within {worst:.0e}"


def clean_exit(place: Path, *, count: int) -> str:
    """G13: a run that succeeded says so, with every way to distribute it, and while it runs
    nothing listens to the network."""
    for number in range(count):
        kind = ("ddp", "fsdp2")[number % 2]
        toy = ToyRun(place, 3, more=f"--train.distribute {kind}")
        launcher = _launched(toy, place / str(number), 2)
        while launcher.poll() is None:
            exposed = [each for each in listening(launcher.pid) if not each.is_loopback]
            require(not exposed, f"{kind}: run {number} listens on {exposed}")
            time.sleep(0.2)
        code = launcher.returncode
        require(code == 0, f"{kind}: run {number} left with {code}")
    return f"{count} of {count} runs of 2 processes left with 0, and listened on loopback alone"


def listening(process: int) -> list[Address]:
    """Where a process and all that it started listen; nothing where the system does not tell."""
    found = []
    for each in _family(process):
        own = _sockets(each)
        for table in ("tcp", "tcp6"):
            for line in _read(Path(f"/proc/{each}/net/{table}")).splitlines()[1:]:
                words = line.split()
                if words[3] == LISTENING and words[9] in own:
                    found.append(_address(words[1].partition(":")[0]))
    return found


def _family(process: int) -> list[int]:
    children = [_read(path) for path in Path(f"/proc/{process}/task").glob("*/children")]
    pids = [int(each) for some in children for each in some.split()]
    return [process, *(each for child in pids for each in _family(child))]


def _sockets(process: int) -> set[str]:
    """The numbers of its sockets."""
    found = set()
    for link in Path(f"/proc/{process}/fd").glob("*"):
        with contextlib.suppress(OSError):  # closed meanwhile
            kind, _, number = os.readlink(link).partition(":")
            if kind == "socket":
                found.add(number.strip("[]"))
    return found


def _read(path: Path) -> str:
    """What a file of /proc says, as long as its process lives."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _address(words: str) -> Address:
    """The kernel writes an address as 32-bit words in the byte order of the machine."""
    parts = [words[at : at + 8] for at in range(0, len(words), 8)]
    packed = b"".join(int(part, 16).to_bytes(4, sys.byteorder) for part in parts)
    found = ipaddress.ip_address(packed)
    inner = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return inner or found


def _launched(toy: ToyRun, folder: Path, world: int) -> subprocess.Popen[bytes]:
    words = ["-m", "clearformer", *toy.words(folder), "--processes", str(world)]
    return subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, "XDG_CACHE_HOME": str(toy.place / "cache")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _wait_for_step(process: subprocess.Popen[bytes], folder: Path, step: int) -> None:
    while process.poll() is None:
        if any(r.get("step", 0) >= step for r in metrics.read(folder / "metrics.jsonl")):
            return
        time.sleep(0.02)
    raise Missed(f"the run ended with {process.returncode} before step {step}")


def _workers(parent: int) -> list[int]:
    path = Path(f"/proc/{parent}/task/{parent}/children")
    if not path.exists():
        raise Skipped("this system does not tell the children of a process")
    return [int(each) for each in path.read_text().split()]


def _loss_difference(one: Path, other: Path) -> float:
    curves = [
        {
            r["step"]: r["train_loss"]
            for r in metrics.read(each / "metrics.jsonl")
            if r["event"] == "step"
        }
        for each in (one, other)
    ]
    require(curves[0].keys() == curves[1].keys(), "some steps are missing")
    return max(abs(curves[0][step] - curves[1][step]) for step in curves[0])
