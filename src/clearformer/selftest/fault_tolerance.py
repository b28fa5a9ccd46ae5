"""G1 to G4, G6, G14: killed, crashed, stopped, out of disk, not a number: still the same run."""

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
from clearformer.selftest.toy_run import TEXT, ToyRun, end_line, newest_step, require_same
from clearformer.train.events import Step

STEPS_A_KILL = 8  # more than a start of training lives to see, so that the kills find it running


def kills(place: Path, *, count: int, seeds: int) -> str:
    """G1: SIGKILL 0 to 150 ms after training began or went on, again and again."""
    done = 0
    for seed in range(seeds):
        wanted = count // seeds + (seed < count % seeds)
        done += _killed(place / f"seed-{seed}", wanted, seed)
    return f"{done} kills: none lost, never backwards, bitwise"


def _killed(place: Path, wanted: int, seed: int) -> int:
    place.mkdir()
    toy, moments = ToyRun(place, STEPS_A_KILL * max(wanted, 1), seed), random.Random(seed)
    toy.finish(place / "whole")
    folder, before, kills = place / "killed", -1, 0
    while True:
        written = _written(folder)
        child = toy.start(folder)
        if kills < wanted:
            while child.alive() and _written(folder) == written:
                time.sleep(0.005)
            time.sleep(moments.uniform(0, 0.15))
            if child.alive():
                child.send(signal.SIGKILL)
        code = child.wait(10 * processes.PATIENCE)
        now = newest_step(folder)
        require(now >= before, f"went back from step {before} to {now} after {kills} kills")
        before = now
        if code == 0:
            break
        require(code == -signal.SIGKILL, f"left with {code}: {child.said()[-300:]}")
        kills += 1
    require_same(folder, place / "whole")
    return kills


def _written(folder: Path) -> int:
    """Bytes of the metrics: they grow as soon as training begins or goes on."""
    path = folder / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


def crash_points(place: Path) -> str:
    """G2: gone at each point of a save, and the run goes on as if nothing had been."""
    toy = ToyRun(place, 6)
    toy.finish(place / "whole")
    for point in POINTS:
        folder = place / point
        at = 6 if point == "during_swap" else 4
        code = toy.start(folder, **{VARIABLE: f"crash:{point}@{at}"}).wait()
        require(code == -signal.SIGKILL, f"{point} was not reached: exit {code}")
        saved = newest_step(folder)
        require(saved >= at - 1, f"{point}: step {saved} is left")
        toy.finish(folder)
        left = [p.name for p in (folder / "checkpoints").iterdir() if p.name.startswith(".")]
        require(not left, f"{point}: {left} stayed behind")
        require_same(folder, place / "whole")
    return f"{len(POINTS)} of {len(POINTS)} points"


# Kinds of run, by what they change; each keeps something that must survive.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "micro-batches and a running average": {"accumulate": 2, "ema": 0.9},
    "bfloat16": {"precision": "bfloat16"},
    "memory": {},
}


def bitwise(place: Path, *, count: int) -> str:
    """G3: N steps against k, a stop, and N - k; around epoch ends, in four kinds of run."""
    chance = random.Random(0)
    where = DataFolders(cache=place / "cache")
    compared = 0
    for number in range(count):
        kind = list(VARIANTS)[number % len(VARIANTS)]
        folder = place / str(number)
        folder.mkdir()
        config = _variant(folder, kind)
        run = Run(config, folder / "whole", where, say=_ignore)
        epoch, total = run.task.steps_per_epoch, run.total_steps
        ids = [run.sample_ids(e.step) for e in run.events() if isinstance(e, Step)]
        stop = [epoch - 1, epoch, epoch + 1, chance.randrange(1, total)][number // 4 % 4]
        stop = min(max(stop, 1), total - 1)
        part = Run(config, folder / "part", where, say=_ignore)
        _until(part, stop)
        torch.rand(7)  # whatever happened to the generators meanwhile
        rest = Run(None, folder / "part", where, resume=True, say=_ignore)
        require(rest.state.step == stop, f"{kind}: stopped at {stop}, resumed {rest.state.step}")
        again = [rest.sample_ids(e.step) for e in rest.events() if isinstance(e, Step)]
        require(again == ids[stop:], f"{kind}: other samples after step {stop}")
        require_same(folder / "part", folder / "whole")
        compared += 1
        shutil.rmtree(folder)
    return f"{compared} stops in {min(count, len(VARIANTS))} kinds of run, bitwise"


def _variant(folder: Path, kind: str) -> RunConfig:
    name = "xl-tiny" if kind == "memory" else "modern-tiny"
    own = {"past": HiddenMemory(length=12)} if kind == "memory" else {"key_heads": 1}
    sizes = {"length": 8, "layers": 1, "width": 16, "heads": 2, "hidden": 32}
    model = replace(preset(name), **sizes, **own, dropout=Dropout(residual=0.1))  # type: ignore[arg-type]
    data, train = recipe(model)
    text = folder / "text.txt"
    text.write_text(TEXT[: 4 * 8 * 9])
    usual = {"batch": 4, "steps": 12, "epochs": None, "minutes": None, "evaluations": 3}
    exact = {"threads": 1, "save_seconds": 1e9, "precision": "float32"}
    train = replace(train, **{**usual, **exact, **VARIANTS[kind]})
    data = replace(data, source=str(text), tokenizer="bytes", vocabulary=None)
    return RunConfig(model=model, data=data, train=train)


def _until(run: Run, step: int) -> None:
    for _ in run.events(lambda: 143 if run.state.step >= step else 0):
        pass


def _ignore(sentence: str) -> None:
    """Notes about the data of a toy interest nobody."""


def signals(place: Path, *, count: int) -> str:
    """G4: SIGTERM, Ctrl-C and SIGHUP at random moments: saved, right code, and the same run."""
    toy, moments = ToyRun(place, 12 * count), random.Random(4)
    kinds = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as it is under nohup
        kinds.append(signal.SIGHUP)
    toy.finish(place / "whole")
    folder, slowest, sent = place / "stopped", 0.0, 0
    while True:
        which = kinds[sent % len(kinds)]
        written = _written(folder)
        child = toy.start(folder)
        if sent < count:
            while child.alive() and _written(folder) == written:
                time.sleep(0.005)
            time.sleep(moments.uniform(0, 0.1))
        began = time.monotonic()
        if sent < count and child.alive():
            child.send(which)
        code = child.wait(10 * processes.PATIENCE)
        if code == 0 or end_line(folder).get("reason") == "finished":
            break  # it had ended before the signal came
        require(code == 128 + which, f"{which.name}: left with {code}: {child.said()[-300:]}")
        slowest = max(slowest, time.monotonic() - began)
        end = end_line(folder)
        right = {"event": "end", "step": newest_step(folder), "reason": "stopped", "exit": code}
        require(end == right, f"{which.name}: the last line is {end}, but {right} was saved")
        sent += 1
    require_same(folder, place / "whole")
    return f"{sent} signals, each saved and bitwise; the slowest took {slowest:.1f} s to end"


def not_a_number(place: Path, *, count: int) -> str:
    """G14: a loss that is no number stops before the weights move."""
    for number in range(count):
        toy, folder, step = ToyRun(place, 10), place / str(number), 2 + number % 8
        child = toy.start(folder, **{VARIABLE: f"nan@{step}"})
        code = child.wait()
        require(code == 3, f"left with {code} and not 3: {child.said()[-300:]}")
        words = (f"step {step}:", "learning rate", "gradient norm", "samples")
        missing = [word for word in words if word not in child.said()]
        require(not missing, f"the message lacks {missing}: {child.said()[-300:]}")
        require(end_line(folder)["exit"] == 3, "the end line does not say exit 3")
        found = checkpoint.newest(folder / "checkpoints", print)
        assert found is not None
        require(found.step == step - 1, f"the last checkpoint is of step {found.step}")
        finite = all(
            bool(torch.isfinite(tensor).all())
            for name in ("model.safetensors", "optimizer.safetensors")
            for tensor in found.tensors(name).values()
        )
        require(finite, f"step {found.step} holds what is no number")
    return f"{count} of {count} stopped before the update, checkpoints finite"


# --- G6 ------------------------------------------------------------------------------------


def full_disk(place: Path, *, count: int) -> str:
    """G6: a disk too small, and one that fills up in the middle: the old checkpoint holds."""
    toy = ToyRun(place, 3)
    toy.finish(place / "whole")
    longer = ToyRun(place, 30)
    small = 0
    for number in range(count):
        folder = place / f"run-{number}"
        if number % 2 and _small_disks():
            words = longer.words(folder / "run")
            whole = place / "whole"
            said = processes.ask(_small_disk, words, str(whole), str(folder), 200 + 40 * number)
            small += 1
        else:
            shutil.copytree(place / "whole", folder)
            child = longer.start(folder, **{VARIABLE: f"enospc@{4 + number}"})
            code = child.wait()
            said = {"code": code, "said": child.said(), "step": newest_step(folder)}
        require(said["code"] == 2, f"left with {said['code']}: {said['said'][-300:]}")
        require("space" in said["said"], f"the message: {said['said'][-300:]}")
        require("Traceback" not in said["said"], "there is a traceback")
        require(said["step"] >= 3, f"step {said['step']} is left of 3")
    how = f"{small} on small disks" if small else "by a fault: small disks need unshare"
    return f"{count} of {count} kept the old checkpoint and said so ({how})"


NEW_USER, NEW_MOUNT = 0x10000000, 0x00020000  # of <sched.h>


def _small_disks() -> bool:
    """Whether a process may have a small disk of its own here."""
    try:
        return bool(processes.ask(_own_mounts, seconds=30))
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


def _small_disk(words: list[str], whole: str, folder: str, kilobytes: int) -> dict[str, Any]:
    """Go on with a copy of a run on a disk with this much room beside it."""
    if not _own_mounts():
        raise Missed("no mounts of one's own")
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
        command(words)
    except SystemExit as leaving:
        code = leaving.code
    sys.stderr.flush()
    return {"code": code, "said": log.read_text(), "step": newest_step(Path(folder) / "run")}
