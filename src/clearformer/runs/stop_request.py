"""The file `stop` in a run's folder: a request to save a checkpoint and end.

A request counts for the run that is going on when the file is created. A run removes a leftover
file once, right after it took the folder's lock and before it reads anything; a file that appears
later ends it at the next step boundary, also while it still loads its data. The few microseconds
between taking the lock and removing the file are the only ones in which a request can be lost.
Workers that torchrun starts again continue the same run, so they keep the file.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from clearformer.runs import lock

NAME = "stop"


def request(folder: Path) -> None:
    """Ask the run in this folder to end; a ValueError if no run is going on there."""
    if not lock.held(folder):
        raise ValueError(
            f"no process that this machine sees is training in {folder}, so there is nothing to "
            f"stop: for a run on another machine, create an empty file `{NAME}` in its folder"
        )
    # Never through a link: that would create a file somewhere else.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with contextlib.suppress(FileExistsError):  # somebody has asked already
        os.close(os.open(folder / NAME, flags, 0o666))


def requested(folder: Path) -> bool:
    """Whether the file is there; a folder of that name is somebody's own."""
    try:
        return not stat.S_ISDIR(os.lstat(folder / NAME).st_mode)
    except OSError:
        return False


def clear(folder: Path) -> bool:
    """Remove the file; whether there was one."""
    found = requested(folder)
    if found:
        (folder / NAME).unlink(missing_ok=True)
    return found
