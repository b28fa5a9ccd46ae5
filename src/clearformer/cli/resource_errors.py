"""What the system does not give: memory, threads, open files. Said in a sentence.

Without torch, since loading it may be what fails.
"""

from __future__ import annotations

import errno
import re
import subprocess
import sys

NO_MEMORY = "out of memory: use a smaller file, batch or model"
# Below this much address space loading torch may fail in a way that ends the process.
CAREFUL_BELOW = 4 * 2**30
# What every command needs: the libraries, and threads that compute.
PROBE = "import numpy, torch; x = torch.ones(512, 512); (x @ x).exp().sum().item()"


def require_address_space() -> None:
    """Where address space is limited (`ulimit -v`), find out in another process whether torch runs.

    A library that gets no memory while it is loaded may end the process, and nothing can be said
    any more.
    """
    limit = _address_space()
    if limit is None or limit >= CAREFUL_BELOW:
        return
    tried = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False)
    if tried.returncode:
        raise ValueError(
            f"torch does not run in {limit / 1e6:,.0f} MB of address space, to which this process "
            f"is limited: raise the limit (ulimit -v), 2 GB are enough for small models"
        )


def _address_space() -> int | None:
    """Bytes that this process may address; None: as many as it likes."""
    try:
        import resource
    except ImportError:  # not on this system
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def lacking(problem: BaseException) -> str | None:
    """Which means were lacking, and what to do; None if the problem is another one."""
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
