"""`--processes` and torchrun: real processes, started, stopped and killed."""

import contextlib
import errno
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from clearformer.cli.launch import (
    LIFELINE,
    launch,
    loopback_interface,
    starts_processes,
    watch_launcher,
)
from clearformer.runs import checkpoint, metrics
from clearformer.runs.resume import require_finite_end
from clearformer.runs.signals import Signals
from clearformer.selftest import distributed_runs
from clearformer.training.step import NonFiniteError

FLAGS = (
    "modern-tiny --layers 1 --width 16 --heads 2 --key-heads 2 --hidden 32 --length 16 "
    "--batch-size 4 "
    "--threads 1 --precision float32 --evaluations 1 --save-seconds 0 --quiet --resume "
    "--model.dropout.residual 0.1 --steps 200"
)


@pytest.fixture
def words(tmp_path):
    data = tmp_path / "text.txt"
    data.write_text("the cat sat on the mat, and the dog sat on the log.\n" * 60)

    def words(out):
        return ["train", *FLAGS.split(), "--data", str(data), "--out", str(tmp_path / out)]

    return words


@pytest.fixture
def start(tmp_path):
    log = tmp_path / "said.txt"

    def start(*command):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with log.open("a") as file:
            words = [sys.executable, "-m", *command]
            return subprocess.Popen(words, env=environment, stdout=file, stderr=file)

    start.said = log.read_text
    return start


def command(words):
    from clearformer.cli.main import main

    main(words)


def until(step, folder, process):
    """Wait for a checkpoint of this step or a later one (it may be pruned between polls)."""
    while not any(int(p.name[5:]) >= step for p in folder.glob("checkpoints/step-*")):
        assert process.poll() is None
        time.sleep(0.02)


def state(folder):
    """Everything on disk that does not depend on the clock."""
    found = checkpoint.newest(folder / "checkpoints", print)
    hashes = {
        name: about["sha256"]
        for name, about in found.manifest["files"].items()
        if name.endswith(".safetensors")
    }
    curve = [
        (r["step"], r["train_loss"])
        for r in metrics.read(folder / "metrics.jsonl")
        if r["event"] == "step"
    ]
    return found.step, hashes, curve


def test_stop_and_killed_worker_do_not_change_run(words, start, tmp_path, several):
    """--processes, ended by SIGTERM and resumed by torchrun, of which one worker is killed."""
    agent = start("clearformer", *words("disturbed"), "--processes", "2")
    until(10, tmp_path / "disturbed", agent)
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(300) == 143
    assert of_torch(start.said()) == []
    stopped = checkpoint.newest(tmp_path / "disturbed/checkpoints", print).step
    last = metrics.read(tmp_path / "disturbed/metrics.jsonl")[-1]
    assert last == {"event": "end", "step": stopped, "reason": "stopped", "exit": 143}
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    agent = start(*torchrun, "--max-restarts", "2", "-m", "clearformer", *words("disturbed"))
    until(stopped + 5, tmp_path / "disturbed", agent)
    os.kill(workers(agent.pid)[1], signal.SIGKILL)
    assert agent.wait(300) == 0, start.said()
    whole = [*words("whole"), "--save-seconds", "3600"]  # how often it is saved changes nothing
    with several.started(2, command, tmp_path, whole) as both:
        for rank in both:
            rank.join(300)
        assert [rank.exitcode for rank in both] == [0, 0]
    assert state(tmp_path / "disturbed") == state(tmp_path / "whole")


def test_f30_remaining_node_continues_alone(words, start, tmp_path):
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    patience = "last_call_timeout=4,keep_alive_interval=1,keep_alive_max_attempt=4"
    torchrun = (
        *("torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1"),
        *("--max-restarts", "5", "--monitor-interval", "0.1", "--rdzv-id", "f30"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}"),
        *("--rdzv-conf", patience, "-m", "clearformer", *words("run"), "--steps", "100000"),
    )
    stays = start(*torchrun)  # and holds the rendezvous
    while not listening(port):
        assert stays.poll() is None, start.said()
        time.sleep(0.05)
    goes = start(*torchrun)
    while "WORLD_SIZE=2" not in [each for pid in workers(goes.pid) for each in variables(pid)]:
        assert [goes.poll(), stays.poll()] == [None, None], start.said()
        time.sleep(0.05)
    until(10, tmp_path / "run", stays)
    for pid in (goes.pid, *workers(goes.pid)):
        os.kill(pid, signal.SIGKILL)
    goes.wait(300)
    # Without the other one a rank ends no more than the step that it is at.
    reached = checkpoint.newest(tmp_path / "run/checkpoints", print).step
    until(reached + 3, tmp_path / "run", stays)
    (alone,) = workers(stays.pid)
    assert "WORLD_SIZE=1" in variables(alone)
    (tmp_path / "run/stop").touch()
    assert stays.wait(300) == 0, start.said()
    told = metrics.read(tmp_path / "run/metrics.jsonl")
    last = checkpoint.newest(tmp_path / "run/checkpoints", print).step
    assert [each["step"] for each in told if each["event"] == "step"] == list(range(1, last + 1))
    assert told[-1] == {"event": "end", "step": last, "reason": "stopped", "exit": 0}


def listening(port):
    try:
        socket.create_connection(("localhost", port), timeout=1).close()
    except OSError:
        return False
    return True


def of_torch(said):
    """Lines of torch's own logs and stack traces."""
    return re.findall(r"^(?:\S*\[?[WE]\d{4} |frame #).*$", said, re.MULTILINE)


def test_killed_launcher_ends_workers_silently(words, start, tmp_path):
    agent = start("clearformer", *words("run"), "--processes", "2", "--steps", "100000")
    until(10, tmp_path / "run", agent)
    started = workers(agent.pid)
    told = [variables(each) for each in started]
    agent.kill()
    agent.wait(300)
    until_gone(started)
    assert of_torch(start.said()) == []
    # Whether a worker still reports before it ends depends on timing.
    quiet = ["TORCH_CPP_LOG_LEVEL=ERROR" in each for each in told]
    assert quiet == [True, True]
    # Saved, and not recorded as a requested stop.
    saved = checkpoint.newest(tmp_path / "run/checkpoints", print).step
    last = metrics.read(tmp_path / "run/metrics.jsonl")[-1]
    assert last == {"event": "end", "step": saved, "reason": "stopped", "exit": 143}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc to find the sockets")
def test_listens_only_on_loopback(words, start, tmp_path):
    """Neither the launcher nor a rank, from the start until the end; DDP is in test_f29."""
    more = ("--processes", "2", "--parallel", "fsdp2", "--steps", "5")
    agent = start("clearformer", *words("run"), *more)
    found = []
    while agent.poll() is None:
        found += distributed_runs.listening(agent.pid)
        time.sleep(0.2)
    assert agent.wait() == 0, start.said()
    assert found  # gloo has been seen
    assert all(each.is_loopback for each in found), found


def test_launcher_killed_during_start_leaves_no_ranks(words, start, tmp_path):
    agent = start("clearformer", *words("run"), "--processes", "2", "--steps", "100000")
    while len(started := workers(agent.pid)) < 2:
        assert agent.poll() is None, start.said()
        time.sleep(0.01)
    agent.kill()
    agent.wait(300)
    assert not (tmp_path / "run/checkpoints").exists()
    until_gone(started)


def require_killed(rank, agent, folder, said):
    """Kill a rank: the launcher says so, records it, and ends with its code."""
    started = workers(agent.pid)
    os.kill(by_rank(started)[rank], signal.SIGKILL)
    assert agent.wait(300) == 137
    until_gone(started)
    assert f"clearformer: rank {rank} was killed by signal 9 (SIGKILL, as the " in said()
    last = metrics.read(folder / "metrics.jsonl")[-1]
    step = last.pop("step")
    assert last == {"event": "end", "reason": "killed", "exit": 137, "rank": rank}
    assert step >= checkpoint.newest(folder / "checkpoints", print).step >= 5


def test_f29_killed_rank_is_reported_and_recorded(words, start, tmp_path):
    """Rank 0, which writes; rank 1 is killed in test_nohup_ignores_closed_terminal."""
    agent = start("clearformer", *words("run"), "--processes", "2", "--steps", "100000")
    found = []
    while not any(tmp_path.glob("run/checkpoints/step-*")):
        found += distributed_runs.listening(agent.pid)
        assert agent.poll() is None, start.said()
        time.sleep(0.2)
    until(5, tmp_path / "run", agent)
    assert all(each.is_loopback for each in found), found
    require_killed(0, agent, tmp_path / "run", start.said)


# A session leader acquires the terminal on its standard input.
IN_A_TERMINAL = """
import fcntl, runpy, signal, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
runpy.run_module("clearformer", run_name="__main__")
"""


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_f27_closed_terminal_saves_and_ends_run(words, tmp_path, processes):
    """The run gets SIGHUP and can no longer write to the terminal."""
    ours, its = os.openpty()
    os.set_blocking(ours, False)
    more = [*processes, "--steps", "100000"]
    command = [sys.executable, "-c", IN_A_TERMINAL, *words("run"), *more]
    command.remove("--quiet")
    run = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, start_new_session=True)
    os.close(its)
    shown = b""
    while not any(tmp_path.glob("run/checkpoints/step-*")):
        assert run.poll() is None, shown
        with contextlib.suppress(BlockingIOError):
            shown += os.read(ours, 2**16)
        time.sleep(0.02)
    os.close(ours)
    assert run.wait(300) == 129
    saved = checkpoint.newest(tmp_path / "run/checkpoints", print).step
    last = metrics.read(tmp_path / "run/metrics.jsonl")[-1]
    assert last == {"event": "end", "step": saved, "reason": "stopped", "exit": 129}


def test_nohup_ignores_closed_terminal(words, tmp_path):
    ignoring = "import signal, runpy; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    program = f"{ignoring}; runpy.run_module('clearformer', run_name='__main__')"
    more = ("--processes", "2", "--steps", "100000")
    log = tmp_path / "said.txt"
    with log.open("w") as file:
        command = [sys.executable, "-c", program, *words("run"), *more]
        run = subprocess.Popen(command, stdout=file, stderr=file)
    until(5, tmp_path / "run", run)
    for each in (run.pid, *workers(run.pid)):
        os.kill(each, signal.SIGHUP)
    reached = checkpoint.newest(tmp_path / "run/checkpoints", print).step
    until(reached + 5, tmp_path / "run", run)
    require_killed(1, run, tmp_path / "run", log.read_text)


def test_rejected_run_leaves_no_folder(words, start, tmp_path):
    agent = start("clearformer", *words("more/run"), "--processes", "2", "--fit", "10MB")
    assert agent.wait(300) == 2
    assert "does not fit into 10.0 MB" in start.said()
    assert start.said().count("\n") == 1
    assert not (tmp_path / "more").exists()


def until_gone(processes):
    ended = time.monotonic() + 300
    while any(Path(f"/proc/{each}").exists() for each in processes):
        assert time.monotonic() < ended
        time.sleep(0.1)


def by_rank(processes):
    """Processes by their rank."""
    told = {each: dict(v.partition("=")[::2] for v in variables(each)) for each in processes}
    return {int(about["RANK"]): each for each, about in told.items()}


def workers(agent):
    found = Path(f"/proc/{agent}/task/{agent}/children")
    if not found.exists():
        pytest.skip("needs /proc to find the workers")
    return [int(each) for each in found.read_text().split()]


def variables(process):
    """The environment of a process, which may have ended."""
    try:
        return Path(f"/proc/{process}/environ").read_text().split("\0")
    except OSError:
        return []


def test_loopback_interface_exists():
    assert loopback_interface() in {name for _, name in socket.if_nameindex()}


def test_reports_processes_that_cannot_start(monkeypatch, tmp_path):
    def refuse(*words, **how):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(
        ValueError, match=r"0 of 2 processes could be started \(.*\): ask for fewer"
    ):
        launch(2, ["train"], tmp_path)


def test_rank_ends_with_its_launcher():
    """Closing the pipe ends the rank as SIGTERM does; the pipe is not inherited."""
    read, write = os.pipe()
    environment = {LIFELINE: str(read), "RANK": "0"}
    with Signals() as signals:
        watch_launcher(environment)
        assert environment == {"RANK": "0"}
        os.close(write)
        ended = time.monotonic() + 300
        while not signals.received:
            assert time.monotonic() < ended
            time.sleep(0.01)
    assert signals.received == [signal.SIGTERM]
    os.close(read)


def test_single_process_watches_no_launcher():
    before = threading.active_count()
    watch_launcher({})
    assert threading.active_count() == before


def test_starts_processes_depends_on_environment():
    assert not starts_processes(None, {})
    assert starts_processes(2, {})
    assert not starts_processes(2, {"WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match="torchrun has started 4 processes, but --processes says"):
        starts_processes(2, {"WORLD_SIZE": "4"})
    with pytest.raises(ValueError, match="--processes is 0, but it must be at least 1"):
        starts_processes(0, {})
    with pytest.raises(ValueError, match=r"--processes is 100000, but .* at most"):
        starts_processes(100_000, {})


def test_restart_after_nan_is_rejected(tmp_path):
    require_finite_end(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"event": "end", "step": 7, "exit": 0}\n')
    require_finite_end(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"event": "end", "step": 7, "exit": 3}\n')
    with pytest.raises(NonFiniteError, match="ended at step 7 with NaN or infinity"):
        require_finite_end(tmp_path)
