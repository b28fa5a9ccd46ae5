"""How OpenMP threads wait for each other, beside other programs.

Torch computes on the CPU with the threads of GNU OpenMP. A thread that has finished its part waits
for the others in a loop of some milliseconds before it sleeps. On a quiet machine that saves the
time of waking up. Beside another program it wastes the core that the slower thread is waiting for,
and a training step can take many times as long.

So a thread of this process watches whether the others have to wait for a core (Linux counts
that), and while they do, lets OpenMP wait briefly. No number that is computed depends on it.
`benchmarks/neighbours.py` measures the effect.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import MutableMapping
from pathlib import Path

# Settings of a user that decide how threads wait.
DECIDED_BY = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
# Iterations of the waiting loop where nothing can be watched; the default of GNU OpenMP is 300,000.
# A little slower alone, and much faster beside other programs.
SPIN_COUNT = "3000"
INTERVAL = 0.25  # seconds between two samples
BUSY, QUIET = 0.05, 0.01  # share of their time that threads wait for a core
QUIET_SAMPLES = 8  # samples in a row after which the machine counts as quiet again

TASKS, MAPS = Path("/proc/self/task"), Path("/proc/self/maps")
_watching = threading.Lock()


def choose_waiting(environment: MutableMapping[str, str] = os.environ) -> None:
    """Choose how threads wait where `watch` cannot; a setting of the user stays as it is.

    OpenMP reads its settings when torch is imported, so this has no effect afterwards. Other
    implementations of OpenMP ignore it.
    """
    if not _decided(environment) and waiting_and_running() is None:
        environment["GOMP_SPINCOUNT"] = SPIN_COUNT


def watch(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Watch this process from now on, once; False where that is not possible or not wanted."""
    if _decided(environment) or waiting_and_running() is None:
        return False
    libraries = loaded_libraries()
    if not libraries:
        return False
    if _watching.acquire(blocking=False):
        threading.Thread(target=_watch, args=(libraries,), daemon=True, name="openmp").start()
    return True


class Contention:
    """Whether the threads of a process compete for cores, from samples of how long they waited.

    It begins at once and ends after `QUIET_SAMPLES` quiet samples.
    """

    def __init__(self) -> None:
        self.busy = False
        self.quiet_samples = 0

    def update(self, waited: int, ran: int) -> bool:
        """Whether there is contention, given the nanoseconds since the last sample."""
        if waited < 0 or ran < 0:  # a thread has ended, and its time is gone
            return self.busy
        total = waited + ran
        if waited <= QUIET * total:
            self.quiet_samples += 1
        else:
            self.quiet_samples = 0
        if waited > BUSY * total:
            self.busy = True
        elif self.quiet_samples >= QUIET_SAMPLES:
            self.busy = False
        return self.busy


class BriefWaiting:
    """Lets OpenMP's threads wait briefly, from `start` to `stop`.

    GNU OpenMP has two lengths of the waiting loop, and takes the short one while it manages more
    threads than there are cores. Threads that sleep count, so a thread of ours holds a team of
    them.
    """

    def __init__(self, libraries: list[ctypes.CDLL]) -> None:
        self.libraries = libraries
        self.end: threading.Event | None = None

    def start(self) -> None:
        if self.end is None:
            self.end = threading.Event()
            threading.Thread(target=self._hold, args=(self.end,), daemon=True).start()

    def stop(self) -> None:
        if self.end is not None:
            self.end.set()
            self.end = None

    def _hold(self, end: threading.Event) -> None:
        threads = len(os.sched_getaffinity(0)) + 1
        for library in self.libraries:
            # A parallel region that does nothing. Its team lives as long as this thread.
            library.GOMP_parallel(library.omp_get_thread_num, None, threads, 0)
        end.wait()


def _watch(libraries: list[ctypes.CDLL]) -> None:
    contention, brief = Contention(), BriefWaiting(libraries)
    before, pause = waiting_and_running(), threading.Event()
    while before is not None:
        pause.wait(INTERVAL)
        now = waiting_and_running()
        if now is None:
            return
        busy = contention.update(now[0] - before[0], now[1] - before[1])
        try:
            brief.start() if busy else brief.stop()
        except RuntimeError:  # no more threads may be started
            return
        before = now


def waiting_and_running() -> tuple[int, int] | None:
    """Nanoseconds that all threads of this process waited for a core, and ran; None if unknown."""
    waited = ran = 0
    try:
        for task in TASKS.iterdir():
            try:
                numbers = (task / "schedstat").read_text().split()
            except (FileNotFoundError, ProcessLookupError):
                if not task.exists():
                    continue  # a thread that has just ended
                raise
            ran += int(numbers[0])
            waited += int(numbers[1])
    except (OSError, ValueError, IndexError):
        return None
    return (waited, ran) if ran else None


def _decided(environment: MutableMapping[str, str]) -> bool:
    return any(name in environment for name in DECIDED_BY)


def loaded_libraries() -> list[ctypes.CDLL]:
    """GNU OpenMP as it is loaded in this process; another library may bring its own."""
    try:
        return [ctypes.CDLL(path) for path in library_paths(MAPS.read_text())]
    except OSError:
        return []


def library_paths(maps: str) -> list[str]:
    """The files of GNU OpenMP among those that are mapped to be executed.

    A file that is only read, such as a checkpoint, is never loaded as a library, whatever its name.
    """
    mapped = (line.split(maxsplit=5) for line in maps.splitlines())
    files = {each[5] for each in mapped if len(each) == 6 and "x" in each[1]}
    return sorted(each for each in files if Path(each).name.startswith("libgomp"))
