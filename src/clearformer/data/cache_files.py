"""Cache files: read only if the user owns them, written whole or not at all.

The cache may be in a folder that others can write to. A file is used only if it is a regular file
(no link, pipe or device) that belongs to the user or to root. Anything else is treated like a
damaged file: it is made again.
"""

import errno
import glob
import os
import socket
import stat
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from clearformer import safe_files
from clearformer.safe_json import read_json


def open_owned(path: Path) -> BinaryIO:
    """Open a regular file that the user owns for reading; anything else is an OSError."""
    descriptor = os.open(path, os.O_RDONLY | safe_files.GUARDED)
    try:
        _require_owned(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def read_owned_json(path: Path) -> Any:
    """The document in a regular file that the user owns; otherwise OSError or ValueError."""
    _require_owned(path.lstat())
    return read_json(path)


def _require_owned(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    if hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0):
        raise OSError(errno.EACCES, f"it belongs to another user, uid {status.st_uid}")


def replacing(path: Path) -> AbstractContextManager[BinaryIO]:
    """A new file that gets the name `path` at the end of the block, and never if that fails."""
    return safe_files.replacing(path, temporary_name(path))


def temporary_name(path: Path) -> Path:
    """A temporary name of this process; files of killed processes of this machine are removed."""
    prefix = f".{path.name}.{socket.gethostname()}."
    for old in path.parent.glob(f"{glob.escape(prefix)}*"):
        pid = old.name.removeprefix(prefix)
        if pid.isascii() and pid.isdecimal() and not _is_alive(int(pid)):
            old.unlink(missing_ok=True)
    return path.with_name(f"{prefix}{os.getpid()}")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # no process has a number that large
        return False
    except OSError:
        return True  # of another user
    return True
