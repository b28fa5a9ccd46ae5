"""How threads wait: as the user decided, else by watching, else briefly."""

import os
import subprocess
import sys

import pytest

from clearformer import openmp
from clearformer.openmp import QUIET_LOOKS, SPIN_COUNT, Contention, choose_waiting, watch

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


def test_contention_begins_at_once_and_ends_after_quiet_looks():
    contention = Contention()
    assert not contention.look(waited=0, ran=100)
    assert not contention.look(waited=4, ran=96)
    assert contention.look(waited=6, ran=94)
    for _ in range(QUIET_LOOKS - 1):
        assert contention.look(waited=0, ran=100)
    assert contention.look(waited=2, ran=98)  # not quiet, so it counts from the beginning
    for _ in range(QUIET_LOOKS - 1):
        assert contention.look(waited=0, ran=0)  # a process that has nothing to do is quiet
    assert not contention.look(waited=0, ran=100)


def test_a_thread_that_ended_says_nothing():
    contention = Contention()
    assert not contention.look(waited=-50, ran=10)
    contention.look(waited=50, ran=50)
    for _ in range(2 * QUIET_LOOKS):
        assert contention.look(waited=0, ran=-10)


@pytest.mark.skipif(not counts_waiting(), reason="this system does not count how threads wait")
def test_time_of_this_process_is_counted():
    waited, ran = openmp.waiting_and_running()
    sum(range(1_000_000))
    later = openmp.waiting_and_running()
    assert later[0] >= waited >= 0
    assert later[1] > ran > 0


# CPU time that the threads of 50 parallel regions take after their work, between short pauses.
WAITING = """
import time
import torch
from clearformer import openmp
torch.set_num_threads(2)
x = torch.zeros(1 << 17)
brief = openmp.BriefWaiting(openmp.loaded_libraries())

def waited():
    x.add_(1)
    before = time.process_time()
    for _ in range(50):
        x.add_(1)
        time.sleep(0.01)
    return time.process_time() - before

waited()
long = waited()
brief.start()
time.sleep(0.5)
short = waited()
brief.stop()
time.sleep(0.5)
print(len(brief.libraries), long, short, waited())
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
