"""G1 to G4, G6 and G14: runs that are killed, crashed, stopped, out of disk space, or NaN."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from clearformer.config import Dropout, HiddenMemory, RunConfig
from clearformer.data import DataFolders
from clearformer.families import preset
from clearformer.families.recipes import recipe
from clearformer.runs import checkpoint
from clearformer.runs.faults import POINTS, VARIABLE
from clearformer.runs.run import Run
from clearformer.selftest import processes
from clearformer.selftest.command_runner import command
from clearformer.selftest.processes import Missed, require
from clearformer.selftest.toy_run import TEXT, ToyRun, last_record, newest_step, require_same
from clearformer.training.events import Step

STEPS_A_KILL = 8  # more than a killed process completes, so that each kill finds it running


def kills(workdir: Path, *, count: int, seeds: int) -> str:
    """G1: SIGKILL up to 150 ms after training started or resumed, again and again."""
    total = 0
    for seed in range(seeds):
        count_of_seed = count // seeds + (seed < count % seeds)
        total += _kill(workdir / f"seed-{seed}", count_of_seed, seed)
    return f"{total} kills: none lost, never backwards, bitwise"


def _kill(workdir: Path, count: int, seed: int) -> int:
    workdir.mkdir()
    toy, delays = ToyRun(workdir, STEPS_A_KILL * max(count, 1), seed), random.Random(seed)
    toy.finish(workdir / "whole")
    folder, before, kills = workdir / "killed", -1, 0
    while True:
        send = signal.SIGKILL if kills < count else None
        code, output, _ = _interrupt(toy, folder, send, delays.uniform(0, 0.15) if send else 0.0)
        now = newest_step(folder)
        require(now >= before, f"went back from step {before} to {now} after {kills} kills")
        before = now
        if code == 0:
            break
        require(code == -signal.SIGKILL, f"exit code {code}: {output}")
        kills += 1
    require_same(folder, workdir / "whole")
    return kills


def _interrupt(
    toy: ToyRun, folder: Path, send: signal.Signals | None, delay: float
) -> tuple[int, str, float]:
    """Start or resume a run, send a signal after its first step, and wait for its end: the exit
    code, the end of the output, and the seconds from the signal to the end."""
    metrics_bytes = _metrics_bytes(folder)
    child = toy.start(folder)
    if send is not None:
        while child.alive() and _metrics_bytes(folder) == metrics_bytes:
            time.sleep(0.005)
        time.sleep(delay)
        if child.alive():
            child.send(send)
    sent_at = time.monotonic()
    code = child.wait(10 * processes.TIMEOUT)
    return code, child.output()[-300:], time.monotonic() - sent_at


def _metrics_bytes(folder: Path) -> int:
    """The size of the metrics, which grow as soon as training starts or resumes."""
    path = folder / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


def crash_points(workdir: Path) -> str:
    """G2: crash at each point of a save, and resume to the same result."""
    toy = ToyRun(workdir, 6)
    toy.finish(workdir / "whole")
    for point in POINTS:
        folder = workdir / point
        at = 6 if point == "during_swap" else 4
        code = toy.start(folder, **{VARIABLE: f"crash:{point}@{at}"}).wait()
        require(code == -signal.SIGKILL, f"{point} was not reached: exit code {code}")
        saved = newest_step(folder)
        require(saved >= at - 1, f"{point}: step {saved} is left")
        toy.finish(folder)
        left = [p.name for p in (folder / "checkpoints").iterdir() if p.name.startswith(".")]
        require(not left, f"{point}: {left} was not removed")
        require_same(folder, workdir / "whole")
    return f"{len(POINTS)} of {len(POINTS)} points"


# Kinds of run by their settings; each has further state to restore.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "micro-batches and a running average": {"accumulation_steps": 2, "ema_decay": 0.9},
    "bfloat16": {"precision": "bfloat16"},
    "memory": {},
}


def bitwise(workdir: Path, *, count: int) -> str:
    """G3: N steps against k, a stop, and N - k; around epoch ends, in four kinds of run."""
    rng = random.Random(0)
    folders = DataFolders(cache=workdir / "cache")
    for number in range(count):
        kind = list(VARIANTS)[number % len(VARIANTS)]
        folder = workdir / str(number)
        folder.mkdir()
        config = _variant(folder, kind)
        run = Run(config, folder / "whole", folders, say=_ignore)
        epoch, total = run.task.steps_per_epoch, run.total_steps
        ids = [run.sample_ids(e.step) for e in run.events() if isinstance(e, Step)]
        stop = [epoch - 1, epoch, epoch + 1, rng.randrange(1, total)][number // 4 % 4]
        stop = min(max(stop, 1), total - 1)
        part = Run(config, folder / "part", folders, say=_ignore)
        _until(part, stop)
        torch.rand(7)  # changes the global random generator
        rest = Run(None, folder / "part", folders, resume=True, say=_ignore)
        require(rest.state.step == stop, f"{kind}: stopped at {stop}, resumed {rest.state.step}")
        again = [rest.sample_ids(e.step) for e in rest.events() if isinstance(e, Step)]
        require(again == ids[stop:], f"{kind}: other samples after step {stop}")
        require_same(folder / "part", folder / "whole")
        shutil.rmtree(folder)
    return f"{count} stops in {min(count, len(VARIANTS))} kinds of run, bitwise"


def _variant(folder: Path, kind: str) -> RunConfig:
    name = "xl-tiny" if kind == "memory" else "modern-tiny"
    sizes: dict[str, Any] = {"length": 8, "layers": 1, "width": 16, "heads": 2, "hidden": 32}
    sizes |= {"cache": HiddenMemory(length=12)} if kind == "memory" else {"key_heads": 1}
    model = replace(preset(name), **sizes, dropout=Dropout(residual=0.1))
    data, train = recipe(model)
    text = folder / "text.txt"
    text.write_text(TEXT[: 4 * 8 * 9])
    usual = {"batch_size": 4, "steps": 12, "epochs": None, "minutes": None, "evaluations": 3}
    exact = {"threads": 1, "save_seconds": 1e9, "precision": "float32"}
    train = replace(train, **{**usual, **exact, **VARIANTS[kind]})
    data = replace(data, source=str(text), tokenizer="bytes", vocabulary=None)
    return RunConfig(model=model, data=data, train=train)


def _until(run: Run, step: int) -> None:
    for _ in run.events(lambda: 143 if run.state.step >= step else 0):
        pass


def _ignore(sentence: str) -> None:
    """Drop the notes about the data."""


def signals(workdir: Path, *, count: int) -> str:
    """G4: SIGTERM, Ctrl-C and SIGHUP at random moments: saved, right exit code, the same run."""
    toy, delays = ToyRun(workdir, 12 * count), random.Random(4)
    kinds = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # it is ignored under nohup
        kinds.append(signal.SIGHUP)
    toy.finish(workdir / "whole")
    folder, sent, slowest = workdir / "stopped", 0, 0.0
    while True:
        kind = kinds[sent % len(kinds)]
        send = kind if sent < count else None
        delay = delays.uniform(0, 0.1) if send else 0.0
        code, output, seconds = _interrupt(toy, folder, send, delay)
        end = last_record(folder)
        if code == 0 or end.get("reason") == "finished":
            break  # it ended before the signal
        require(code == 128 + kind, f"{kind.name}: exit code {code}: {output}")
        slowest = max(slowest, seconds)
        expected = {"event": "end", "step": newest_step(folder), "reason": "stopped", "exit": code}
        require(end == expected, f"{kind.name}: the last line is {end}, but {expected} was saved")
        sent += 1
    require_same(folder, workdir / "whole")
    return f"{sent} signals, each saved and bitwise; the slowest took {slowest:.1f} s to end"


def not_a_number(workdir: Path, *, count: int) -> str:
    """G14: a NaN loss stops the run before the weights are updated."""
    for number in range(count):
        toy, folder, step = ToyRun(workdir, 10), workdir / str(number), 2 + number % 8
        child = toy.start(folder, **{VARIABLE: f"nan@{step}"})
        code = child.wait()
        require(code == 3, f"exit code {code} and not 3: {child.output()[-300:]}")
        expected = (f"step {step}:", "learning rate", "gradient norm", "samples")
        missing = [each for each in expected if each not in child.output()]
        require(not missing, f"the message lacks {missing}: {child.output()[-300:]}")
        require(last_record(folder)["exit"] == 3, "the end line does not say exit 3")
        newest = checkpoint.newest(folder / "checkpoints", print)
        assert newest is not None
        require(newest.step == step - 1, f"the last checkpoint is of step {newest.step}")
        finite = all(
            bool(torch.isfinite(tensor).all())
            for name in ("model.safetensors", "optimizer.safetensors")
            for tensor in newest.tensors(name).values()
        )
        require(finite, f"the checkpoint of step {newest.step} has NaN or infinities")
    return f"{count} of {count} stopped before the update, checkpoints finite"


# --- G6 ------------------------------------------------------------------------------------


def full_disk(workdir: Path, *, count: int) -> str:
    """G6: a disk that is too small, and one that fills up: the old checkpoint stays."""
    toy = ToyRun(workdir, 3)
    toy.finish(workdir / "whole")
    longer = ToyRun(workdir, 30)
    small = 0
    for number in range(count):
        folder = workdir / f"run-{number}"
        if number % 2 and _small_disks():
            arguments = longer.arguments(folder / "run")
            result = processes.call(
                _small_disk, arguments, str(workdir / "whole"), str(folder), 200 + 40 * number
            )
            small += 1
        else:
            shutil.copytree(workdir / "whole", folder)
            child = longer.start(folder, **{VARIABLE: f"enospc@{4 + number}"})
            code = child.wait()
            result = {"code": code, "output": child.output(), "step": newest_step(folder)}
        output = result["output"]
        require(result["code"] == 2, f"exit code {result['code']}: {output[-300:]}")
        require("space" in output, f"the message: {output[-300:]}")
        require("Traceback" not in output, "there is a traceback")
        require(result["step"] >= 3, f"step {result['step']} is left of 3")
    method = f"{small} on small disks" if small else "by a fault: small disks need unshare"
    return f"{count} of {count} kept the old checkpoint and reported it ({method})"


NEW_USER, NEW_MOUNT = 0x10000000, 0x00020000  # of <sched.h>


def _small_disks() -> bool:
    """Whether a process may mount a small disk here."""
    try:
        return bool(processes.call(_own_mounts, seconds=30))
    except Missed:
        return False


def _own_mounts() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(NEW_USER | NEW_MOUNT):
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    return True


def _small_disk(arguments: list[str], whole: str, folder: str, kilobytes: int) -> dict[str, Any]:
    """Resume a copy of a run on a disk with this much free space."""
    if not _own_mounts():
        raise Missed("cannot create a mount namespace")
    os.makedirs(folder)
    used = sum(path.stat().st_size for path in Path(whole).rglob("*") if path.is_file())
    size = f"size={used // 1024 + kilobytes}k".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, size):
        raise Missed(f"tmpfs: {os.strerror(ctypes.get_errno())}")
    log = Path(folder).with_suffix(".log")
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    shutil.copytree(whole, f"{folder}/run")
    os.environ["XDG_CACHE_HOME"] = str(Path(whole).parent / "cache")
    code: object = 0
    try:
        command(arguments)
    except SystemExit as ending:
        code = ending.code
    sys.stderr.flush()
    return {"code": code, "output": log.read_text(), "step": newest_step(Path(folder) / "run")}
