"""The file `stop` in a run's folder: a request to save a checkpoint and end.

A request is for the run that is active when the file is created. A run removes a leftover file
once, right after it acquired the folder's lock and before it reads anything; a file that appears
later ends it at the next step boundary, also while it still loads its data. A request can only be
lost in the few microseconds between acquiring the lock and removing the file. Workers that
torchrun restarts continue the same run, so they keep the file.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from clearformer.runs import lock

NAME = "stop"


def request(folder: Path) -> None:
    """Ask the run in this folder to end; ValueError if none is active there."""
    if not lock.held(folder):
        raise ValueError(
            f"no process on this machine is training in {folder}, so there is nothing to stop: for "
            f"a run on another machine, create an empty file `{NAME}` in its folder"
        )
    # Links are not followed: that would create a file somewhere else.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with contextlib.suppress(FileExistsError):  # already requested
        os.close(os.open(folder / NAME, flags, 0o666))


def requested(folder: Path) -> bool:
    """Whether the file exists; a folder of that name does not count."""
    try:
        return not stat.S_ISDIR(os.lstat(folder / NAME).st_mode)
    except OSError:
        return False


def clear(folder: Path) -> bool:
    """Remove the file; return whether there was one."""
    existed = requested(folder)
    if existed:
        (folder / NAME).unlink(missing_ok=True)
    return existed
