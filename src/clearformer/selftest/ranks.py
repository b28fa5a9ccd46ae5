"""G12 and G13: runs of several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from clearformer.selftest.nursery import Missed, Skipped, require
from clearformer.selftest.toy import Toy, require_same
from clearformer.train import records

LOSS = 1e-5
# Muon works in bfloat16, whose last digit depends on how a gradient was added up.
EXACT = "--model.dropout.residual 0 --optimizer adamw --lr 1e-3 --precision float32"


def elastic(place: Path, *, kills: int) -> str:
    """G12: workers killed, and the world changed, and the curve stays what it was."""
    toy = Toy(place, 60)
    require(_torchrun(toy, place / "whole", 2).wait() == 0, "a run of 2 processes did not finish")
    for number in range(kills):
        folder = place / f"killed-{number}"
        torchrun = _torchrun(toy, folder, 2, "--max-restarts", "3")
        _wait_for_step(torchrun, folder, 10)
        os.kill(_workers(torchrun.pid)[1], signal.SIGKILL)
        require(torchrun.wait() == 0, f"kill {number}: torchrun left with {torchrun.returncode}")
        require_same(folder, place / "whole")
    plain = Toy(place, 60, more=EXACT)
    require(_torchrun(plain, place / "one", 1).wait() == 0, "a run of 1 process did not finish")
    folder = place / "changing"
    for step, world in ((20, 1), (40, 2), (None, 1)):
        torchrun = _torchrun(plain, folder, world)
        if step is not None:
            _wait_for_step(torchrun, folder, step)
            (folder / "stop").touch()
        require(torchrun.wait() == 0, f"world {world}: left with {torchrun.returncode}")
    worst = _loss_difference(folder, place / "one")
    require(worst <= LOSS, f"losses differ by {worst:.1e} after a change of the world")
    return f"{kills} workers killed, bitwise; 1 to 2 to 1 processes within {worst:.0e}"


def clean_exit(place: Path, *, count: int) -> str:
    """G13: a run that succeeded says so, with every way to distribute it."""
    for number in range(count):
        kind = ("ddp", "fsdp2")[number % 2]
        toy = Toy(place, 3, more=f"--train.distribute {kind}")
        code = _torchrun(toy, place / str(number), 2).wait()
        require(code == 0, f"{kind}: run {number} left with {code}")
    return f"{count} of {count} runs of 2 processes left with 0"


def _torchrun(toy: Toy, folder: Path, world: int, *flags: str) -> subprocess.Popen[bytes]:
    words = ["--standalone", f"--nproc-per-node={world}", *flags, "-m", "clearformer"]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *words, *toy.words(folder)],
        env={**os.environ, "XDG_CACHE_HOME": str(toy.place / "cache")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _wait_for_step(process: subprocess.Popen[bytes], folder: Path, step: int) -> None:
    while process.poll() is None:
        if any(r.get("step", 0) >= step for r in records.read(folder / "metrics.jsonl")):
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
            for r in records.read(each / "metrics.jsonl")
            if r["event"] == "step"
        }
        for each in (one, other)
    ]
    require(curves[0].keys() == curves[1].keys(), "some steps are missing")
    return max(abs(curves[0][step] - curves[1][step]) for step in curves[0])
