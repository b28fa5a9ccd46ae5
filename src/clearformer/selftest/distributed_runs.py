"""G12 and G13: training runs of several processes."""

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
from clearformer.selftest.toy_run import ToyRun, last_record, require_same

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LISTENING = "0A"  # the state of a socket in /proc/net/tcp
LOSS_TOLERANCE = 1e-5
# Muon computes in bfloat16, where the order of a sum changes the last digit.
EXACT = "--model.dropout.residual 0 --optimizer adamw --lr 1e-3 --precision float32"


def elastic(workdir: Path, *, kills: int) -> str:
    """G12: the curve stays the same when workers are killed and the world size changes."""
    toy = ToyRun(workdir, 60)
    require(_launch(toy, workdir / "whole", 2).wait() == 0, "a run of 2 processes did not finish")
    for number in range(kills):
        folder = workdir / f"killed-{number}"
        launcher = _launch(toy, folder, 2)
        _wait_for_step(launcher, folder, 10)
        os.kill(_workers(launcher.pid)[1], signal.SIGKILL)
        killed = 128 + signal.SIGKILL
        code = launcher.wait()
        require(code == killed, f"kill {number}: exit code {code} and not {killed}")
        end = last_record(folder)
        require(end.get("exit") == killed, f"kill {number}: the last line is {end}")
        code = _launch(toy, folder, 2).wait()
        require(code == 0, f"kill {number}: resumed, exit code {code}")
        require_same(folder, workdir / "whole")
    plain = ToyRun(workdir, 60, more=EXACT)
    require(_launch(plain, workdir / "one", 1).wait() == 0, "a run of 1 process did not finish")
    folder = workdir / "changing"
    for step, world in ((20, 1), (40, 2), (None, 1)):
        launcher = _launch(plain, folder, world)
        if step is not None:
            _wait_for_step(launcher, folder, step)
            (folder / "stop").touch()
        require(launcher.wait() == 0, f"world {world}: exit code {launcher.returncode}")
    worst = _loss_difference(folder, workdir / "one")
    require(
        worst <= LOSS_TOLERANCE, f"losses differ by {worst:.1e} after a change of the world size"
    )
    return f"{kills} workers killed, bitwise; 1 to 2 to 1 processes within {worst:.0e}"


def clean_exit(workdir: Path, *, count: int) -> str:
    """G13: successful runs exit with 0, with DDP and FSDP2, and listen on loopback only."""
    for number in range(count):
        kind = ("ddp", "fsdp2")[number % 2]
        toy = ToyRun(workdir, 3, more=f"--train.parallel {kind}")
        launcher = _launch(toy, workdir / str(number), 2)
        while launcher.poll() is None:
            exposed = [each for each in listening(launcher.pid) if not each.is_loopback]
            require(not exposed, f"{kind}: run {number} listens on {exposed}")
            time.sleep(0.2)
        code = launcher.returncode
        require(code == 0, f"{kind}: run {number} ended with exit code {code}")
    return f"{count} of {count} runs of 2 processes exited with 0, and listened on loopback only"


def listening(process: int) -> list[Address]:
    """The addresses on which a process and its descendants listen, if the system reports them."""
    addresses = []
    for each in _descendants(process):
        sockets = _sockets(each)
        for table in ("tcp", "tcp6"):
            for line in _read(Path(f"/proc/{each}/net/{table}")).splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and fields[9] in sockets:
                    addresses.append(_address(fields[1].partition(":")[0]))
    return addresses


def _descendants(process: int) -> list[int]:
    children = [_read(path) for path in Path(f"/proc/{process}/task").glob("*/children")]
    pids = [int(each) for some in children for each in some.split()]
    return [process, *(each for child in pids for each in _descendants(child))]


def _sockets(process: int) -> set[str]:
    """The inode numbers of its sockets."""
    inodes = set()
    for link in Path(f"/proc/{process}/fd").glob("*"):
        with contextlib.suppress(OSError):  # closed meanwhile
            kind, _, number = os.readlink(link).partition(":")
            if kind == "socket":
                inodes.add(number.strip("[]"))
    return inodes


def _read(path: Path) -> str:
    """The text of a file in /proc, or nothing if the process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _address(words: str) -> Address:
    """Parse an address of /proc/net: 32-bit words in the byte order of the machine."""
    parts = [words[at : at + 8] for at in range(0, len(words), 8)]
    packed = b"".join(int(part, 16).to_bytes(4, sys.byteorder) for part in parts)
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _launch(toy: ToyRun, folder: Path, world: int) -> subprocess.Popen[bytes]:
    arguments = ["-m", "clearformer", *toy.arguments(folder), "--processes", str(world)]
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "XDG_CACHE_HOME": str(toy.workdir / "cache")},
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
        raise Skipped("this system does not list the children of a process")
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
