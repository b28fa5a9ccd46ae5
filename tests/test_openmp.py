"""How threads wait: as the user decided, else by watching, else briefly."""

import os
import subprocess
import sys

import pytest

from clearformer import openmp
from clearformer.openmp import QUIET_SAMPLES, SPIN_COUNT, Contention, choose_waiting, watch

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}


def counts_waiting():
    return openmp.waiting_and_running() is not None


@pytest.fixture
def unknown(monkeypatch):
    """A system that does not count how long threads wait."""
    monkeypatch.setattr(openmp, "waiting_and_running", lambda: None)


def test_where_nothing_can_be_watched_threads_wait_briefly(unknown):
    environment: dict[str, str] = {}
    choose_waiting(environment)
    assert environment == {"GOMP_SPINCOUNT": SPIN_COUNT}
    assert not watch({})


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_a_setting_of_the_user_stays(name, unknown):
    environment = {name: "7"}
    choose_waiting(environment)
    assert environment == {name: "7"}


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_nothing_is_watched_where_the_user_decided(name):
    assert not watch({name: "7"})


def test_importing_the_package_neither_imports_torch_nor_starts_a_thread():
    script = (
        "import sys, threading, clearformer;print('torch' in sys.modules, threading.active_count())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=CLEAN
    )
    assert done.stdout.split() == ["False", "1"]


def test_contention_begins_at_once_and_ends_after_quiet_samples():
    contention = Contention()
    assert not contention.update(waited=0, ran=100)
    assert not contention.update(waited=4, ran=96)
    assert contention.update(waited=6, ran=94)
    for _ in range(QUIET_SAMPLES - 1):
        assert contention.update(waited=0, ran=100)
    assert contention.update(waited=2, ran=98)  # not quiet, so it counts from the beginning
    for _ in range(QUIET_SAMPLES - 1):
        assert contention.update(waited=0, ran=0)  # a process that has nothing to do is quiet
    assert not contention.update(waited=0, ran=100)


def test_a_thread_that_ended_says_nothing():
    contention = Contention()
    assert not contention.update(waited=-50, ran=10)
    contention.update(waited=50, ran=50)
    for _ in range(2 * QUIET_SAMPLES):
        assert contention.update(waited=0, ran=-10)


def test_times_of_all_threads_are_added(monkeypatch, tmp_path):
    monkeypatch.setattr(openmp, "TASKS", tmp_path)
    for name, numbers in (("1", "700 20 9"), ("2", "300 5 1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(numbers)
    assert openmp.waiting_and_running() == (25, 1000)
    (tmp_path / "2" / "schedstat").write_text("0 0")
    (tmp_path / "1" / "schedstat").write_text("0 0")  # a system that counts nothing
    assert openmp.waiting_and_running() is None
    (tmp_path / "2" / "schedstat").unlink()
    assert openmp.waiting_and_running() is None


def test_only_libraries_that_are_executed_are_opened():
    """A checkpoint may be mapped too, under any name."""
    maps = """\
7f0000000000-7f0000001000 r--p 00000000 08:01 7 /usr/lib/libgomp.so.1
7f0000001000-7f0000002000 r-xp 00001000 08:01 7 /usr/lib/libgomp.so.1
7f0000002000-7f0000003000 r--p 00000000 08:01 8 /tmp/libgomp/model.safetensors
7f0000003000-7f0000004000 r--p 00000000 08:01 9 /tmp/libgomp.so
7f0000004000-7f0000005000 r-xp 00000000 08:01 6 /usr/lib/libgomp-tools/libc.so
7f0000005000-7f0000006000 r-xp 00000000 00:00 0
"""
    assert openmp.library_paths(maps) == ["/usr/lib/libgomp.so.1"]


# CPU time that the threads of parallel regions take after their work, between short pauses. What
# else the machine does can add to it or cut it short, so of several tries the clearest one counts.
WAITING = """
import os, time
import torch
from clearformer import openmp
torch.set_num_threads(2)
x = torch.zeros(1 << 17)
brief = openmp.BriefWaiting(openmp.loaded_libraries())
if not brief.libraries:
    raise SystemExit(print(0))

def waited():
    x.add_(1)
    before = time.process_time()
    for _ in range(20):
        x.add_(1)
        time.sleep(0.01)
    return time.process_time() - before

def until(reached):
    for _ in range(6000):
        if reached():
            break
        time.sleep(0.01)

def threads():
    return len(os.listdir("/proc/self/task"))

waited()
alone = threads()
long = max(waited() for _ in range(3))
brief.start()
until(lambda: threads() >= alone + len(os.sched_getaffinity(0)))
short = min(waited() for _ in range(3))
brief.stop()
until(lambda: threads() <= alone)
print(len(brief.libraries), long, short, max(waited() for _ in range(3)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP as Linux has it")
@pytest.mark.skipif(
    sys.platform == "linux" and len(os.sched_getaffinity(0)) < 2,
    reason="with more threads than cores they always wait briefly",
)
def test_threads_wait_briefly_while_asked_to():
    done = subprocess.run(
        [sys.executable, "-c", WAITING], capture_output=True, text=True, check=True, env=CLEAN
    )
    libraries, *seconds = done.stdout.split()
    if libraries == "0":
        pytest.skip("this torch has another OpenMP")
    long, short, after = map(float, seconds)
    assert short < long / 3
    assert short < after / 3


def test_runs_with_several_threads_are_watched(monkeypatch):
    from clearformer.training import device

    calls = []
    monkeypatch.setattr(openmp, "watch", lambda: calls.append(1))
    monkeypatch.setattr(device.torch, "set_num_threads", lambda threads: None)
    device.set_threads(1)
    assert calls == []
    device.set_threads(2)
    assert calls == [1]
