"""Safe file access: no links, no pipes, files written whole or not at all.

Inside a run folder symbolic links are never followed, only regular files are opened, and nothing
waits for a named pipe. The run folder itself may be a link, because the user named it. Without
torch, and below everything else, so that every file of a run is opened in the same way.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from io import BufferedReader, BufferedWriter
from pathlib import Path

# Not every system has every flag. O_NONBLOCK: opening a pipe does not wait for its other end.
GUARDED = sum(
    getattr(os, name, 0)
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
)

KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFREG: "a regular file",
}


# --- file types ----------------------------------------------------------------------------


def is_file(path: Path) -> bool:
    """Whether this name is a regular file and not a link."""
    return _mode(path) == stat.S_IFREG


def is_folder(path: Path) -> bool:
    """Whether this name is a directory and not a link."""
    return _mode(path) == stat.S_IFDIR


def require_folder(path: Path) -> None:
    """ValueError if this name exists and is not a directory."""
    if _mode(path) not in (0, stat.S_IFDIR):
        raise _refusal(path, _mode(path), "a directory")


def require_file(path: Path) -> None:
    """ValueError if this name exists and is not a regular file."""
    if _mode(path) not in (0, stat.S_IFREG):
        raise _refusal(path, _mode(path), "a regular file")


# --- reading -------------------------------------------------------------------------------


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a regular file. ValueError for anything else, OSError from `os.open`."""
    require_file(path)  # before it is opened: opening a device can already do something
    descriptor = os.open(path, flags | GUARDED, 0o666)
    mode = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if mode != stat.S_IFREG:  # it was put there in between
        os.close(descriptor)
        raise _refusal(path, mode, "a regular file")
    return descriptor


def open_reading(path: Path) -> BufferedReader:
    """A regular file, to read bytes from."""
    return os.fdopen(open_file(path), "rb")


def open_limited(path: Path, most: int, limit: str) -> BufferedReader:
    """The same for a file of at most so many bytes; `limit` is the name of this limit."""
    file = open_reading(path)
    size = os.fstat(file.fileno()).st_size
    if size > most:
        file.close()
        raise ValueError(f"{path} has {size:,} bytes, but {most:,} are the most ({limit})")
    return file


def read(path: Path, most: int, limit: str) -> bytes:
    """All of a regular file that has at most so many bytes."""
    with open_limited(path, most, limit) as file:
        return file.read()


# --- writing -------------------------------------------------------------------------------


def open_in_place(path: Path) -> int:
    """The descriptor of a file to append to or truncate, created if it does not exist.

    A file with a second hard link is copied first: its other name may be a backup (`cp -al`), or
    a file that has nothing to do with the run, and what is written must not appear there.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    descriptor = open_file(path, flags)
    if os.fstat(descriptor).st_nlink <= 1:
        return descriptor
    with os.fdopen(descriptor, "rb") as shared, replacing(path) as copy:
        shutil.copyfileobj(shared, copy)
    return open_file(path, flags)


def replace(path: Path, data: bytes) -> None:
    """Write a file atomically. A link of this name is replaced, not its target."""
    with replacing(path) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path, temporary: Path | None = None) -> Iterator[BufferedWriter]:
    """A new file that gets the name `path` at the end of the block, and never if that fails."""
    temporary = temporary or path.with_name(f".{path.name}-{os.getpid()}")
    temporary.unlink(missing_ok=True)  # of a killed process with the same id
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | GUARDED, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove(path: Path) -> None:
    """Delete a directory with its content, a file, or a link but not its target.

    Errors are ignored.
    """
    if is_folder(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def require_same(descriptor: int, path: Path) -> None:
    """ValueError if an open file of a run was removed or replaced: its content would be lost."""
    try:
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            return
    except (FileNotFoundError, NotADirectoryError):
        pass
    what = path if path.parent.is_dir() else f"the run folder {path.parent}"
    raise ValueError(
        f"{what} was removed, moved or replaced while the run was writing to it, so nothing more "
        f"is saved: if it was moved, continue with --resume and the new folder as --out"
    )


# --- helpers -------------------------------------------------------------------------------


def _mode(path: Path) -> int:
    """The file type of this name; 0 if it does not exist or cannot be accessed."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return 0


def _refusal(path: Path, mode: int, wanted: str) -> ValueError:
    kind = KINDS.get(mode, "a special file")
    why = ", and links inside a run folder are not followed" if mode == stat.S_IFLNK else ""
    return ValueError(
        f"{path} is {kind}, but {wanted} is needed{why}: delete it, or put the real one there"
    )
