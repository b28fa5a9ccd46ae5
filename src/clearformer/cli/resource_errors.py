"""Errors of missing resources (memory, threads, open files) as sentences.

Without torch, since importing it may be what fails.
"""

from __future__ import annotations

import errno
import re
import subprocess
import sys

NO_MEMORY = "out of memory: use a smaller file, batch or model"
# Below this much address space, importing torch may abort the process.
PROBE_BELOW = 4 * 2**30
# What every command needs: the libraries, and threads.
PROBE = "import numpy, torch; x = torch.ones(512, 512); (x @ x).exp().sum().item()"


def require_address_space() -> None:
    """Where address space is limited (`ulimit -v`), try in another process whether torch runs.

    A library that gets no memory while it is loaded may abort the process without a message.
    """
    limit = _address_space()
    if limit is None or limit >= PROBE_BELOW:
        return
    tried = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False)
    if tried.returncode:
        raise ValueError(
            f"torch does not run in {limit / 1e6:,.0f} MB of address space, to which this process "
            f"is limited: raise the limit (ulimit -v), 2 GB are enough for small models"
        )


def _address_space() -> int | None:
    """Limit on the bytes that this process may address; None without a limit."""
    try:
        import resource
    except ImportError:  # not on this system
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def resource_error(problem: BaseException) -> str | None:
    """Which resource is missing and what to do; None for any other error."""
    text = str(problem)
    if isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE):
        return "too many files are open: raise the limit (ulimit -n)"
    if "can't start new thread" in text:
        return "no more threads can be started: raise the limit (ulimit -u), or use fewer --threads"
    if isinstance(problem, ImportError) and re.search("failed to map|annot allocate", text):
        return "out of memory while libraries were loaded: raise the limit (ulimit -v)"
    if isinstance(problem, MemoryError):
        return NO_MEMORY
    if isinstance(problem, RuntimeError) and re.search("allocate memory|out of memory", text):
        return NO_MEMORY
    return None
