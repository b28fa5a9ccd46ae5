"""Lock of a run folder: writable, and used by one process at a time.

Without torch, so that a folder that cannot be used is reported at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from clearformer import safe_files

TRIES, TRY_SECONDS = 20, 0.01


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Require a writable folder; folders that were created for it are removed if left empty."""
    made = [each for each in (folder, *folder.parents) if not os.path.exists(each)]
    try:
        require_writable(folder)
        yield
    finally:
        for each in made:
            with contextlib.suppress(OSError):  # one that is not empty stays
                each.rmdir()


def require_writable(folder: Path) -> None:
    """Check by writing a file, instead of failing at the first checkpoint."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        safe_files.replace(probe, b"")
        probe.unlink()
    except OSError as problem:
        raise ValueError(
            f"the run folder {folder} cannot be written to: {problem.strerror}; choose another "
            f"--out"
        ) from None


def held(folder: Path) -> bool:
    """Whether a process holds the lock of this folder; nothing is changed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(folder / "lock", flags)
    except OSError:  # never locked
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


class Lock:
    """Exclusive use of a run folder, from before it is read until `release`.

    The system releases it when the process ends, in any way; the file `lock` names the owner.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        descriptor = self._acquire()
        while not self._is_current(descriptor):
            os.close(descriptor)
            descriptor = self._acquire()
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}".encode(), 0)
        # A run that is garbage-collected before it began releases it too.
        self.release = weakref.finalize(self, os.close, descriptor)

    def require_held(self) -> None:
        """ValueError if the folder was removed, moved or replaced since it was locked."""
        safe_files.require_same(self._descriptor, self.path)

    def discard(self) -> None:
        """Release the lock, and remove a folder that holds nothing else."""
        # A folder that cannot be removed (another rank reads it, or it is a link) stays.
        with contextlib.suppress(OSError):
            if [each.name for each in self.path.parent.iterdir()] == [self.path.name]:
                self.path.unlink()
                self.path.parent.rmdir()
        self.release()

    def _acquire(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = safe_files.open_file(self.path, os.O_RDWR | os.O_CREAT)
        try:
            self._flock(descriptor)
        except OSError:
            owner = _printable(os.read(descriptor, 200).decode("utf-8", "replace").strip())
            os.close(descriptor)
            raise ValueError(
                f"{self.path.parent} is being trained by another process ({owner}): stop it "
                f"first, or choose another --out"
            ) from None
        return descriptor

    def _flock(self, descriptor: int) -> None:
        """Lock the file; retry for a moment, since `held` locks it for an instant."""
        for _ in range(TRIES):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(TRY_SECONDS)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _is_current(self, descriptor: int) -> bool:
        """Whether the locked file still has its name, and no other name."""
        locked = os.fstat(descriptor)
        try:
            there = os.path.samestat(locked, os.lstat(self.path))
        except FileNotFoundError:
            return False  # its owner has removed it meanwhile
        if there and locked.st_nlink > 1:
            # A hard link: its other name may be a backup or any file, which must not be
            # overwritten. This folder gets a new file.
            self.path.unlink()
            return False
        return there


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
