"""How OpenMP threads wait for each other.

Torch computes on the CPU with the threads of GNU OpenMP. A thread that has finished its part waits
for the others, by default in a loop that lasts about a millisecond before it sleeps. On a quiet
machine that saves the time of waking up. Beside another program it wastes the core that the
slower thread is waiting for, and a training step can take many times as long.

A short loop is nearly as fast alone, and much faster beside others (`benchmarks/neighbours.py`).
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

SPIN_COUNT = "3000"  # iterations of the waiting loop; the default of GNU OpenMP is 300,000
# Settings of a user that decide how threads wait.
DECIDED_BY = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def wait_briefly(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let idle threads wait actively for a short time only.

    OpenMP reads the setting when torch is imported, so this has no effect afterwards. A setting
    of the user stays as it is. Other implementations of OpenMP ignore it.
    """
    if not any(name in environment for name in DECIDED_BY):
        environment["GOMP_SPINCOUNT"] = SPIN_COUNT
