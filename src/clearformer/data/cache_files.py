"""Files of the cache: read only if they are the user's own, written whole or not at all.

The cache may lie in a folder that others can write to. A file in it is used only if it is a
regular file (no link, pipe or device) that belongs to the user or to root. Anything else is
treated like a damaged file: it is made again.
"""

import errno
import glob
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from clearformer.safe_json import read_json

# Absent on Windows, which has no such files either.
NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
AS_BYTES = getattr(os, "O_BINARY", 0)


def open_own(path: Path) -> BinaryIO:
    """Open a regular file of the user's own for reading; anything else is an OSError."""
    descriptor = os.open(path, os.O_RDONLY | NO_LINKS | AS_BYTES)
    try:
        _require_own(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def read_own_json(path: Path) -> Any:
    """The document in a regular file of the user's own; otherwise OSError or ValueError."""
    _require_own(path.lstat())
    return read_json(path)


def _require_own(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    if hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0):
        raise OSError(errno.EACCES, f"it belongs to another user, uid {status.st_uid}")


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A new file that gets the name `path` at the end of the block, and never if that fails."""
    temporary = temporary_name(path)
    temporary.unlink(missing_ok=True)  # of an earlier process with this process's number
    # Never through a link, nor into a file, that someone else put there.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS | AS_BYTES
    file = os.fdopen(os.open(temporary, flags, 0o666), "wb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def temporary_name(path: Path) -> Path:
    """A name of this process's own; what killed processes of this machine left is removed."""
    prefix = f".{path.name}.{socket.gethostname()}."
    for old in path.parent.glob(f"{glob.escape(prefix)}*"):
        owner = old.name.removeprefix(prefix)
        if owner.isascii() and owner.isdecimal() and not _is_alive(int(owner)):
            old.unlink(missing_ok=True)
    return path.with_name(f"{prefix}{os.getpid()}")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # no process has a number that large
        return False
    except OSError:
        return True  # it is someone else's
    return True
