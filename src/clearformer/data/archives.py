"""Reading archives from anyone: nothing is ever unpacked to the disk.

Only regular files with the name we expect are read, straight into memory or into a stream;
links, devices, absolute and climbing paths are therefore no danger, they are just not read.
What is left is size, and that is capped.
"""

import gzip
import re
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from clearformer import limits
from clearformer.data.texts import READ


class LimitError(ValueError):
    """An archive is larger than we are willing to read."""


class _Capped:
    """The unpacked bytes of a gzip file, up to the limits."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.packed = path.stat().st_size
        self.given = 0

    def read(self, size: int) -> bytes:
        chunk = self.file.read(size)
        self.given += len(chunk)
        require_within(self.path, self.given, self.packed)
        return chunk


def require_within(path: Path, unpacked: int, packed: int) -> None:
    """Refuse what unpacks to far more than text ever does."""
    if unpacked > limits.MAX_ARCHIVE_BYTES:
        raise LimitError(
            f"{path}: it unpacks to more than {limits.MAX_ARCHIVE_BYTES:,} bytes "
            f"(MAX_ARCHIVE_BYTES): {_UNPACK}"
        )
    if unpacked > limits.RATIO_FREE_BYTES and unpacked > limits.MAX_UNPACK_RATIO * packed:
        raise LimitError(
            f"{path}: it unpacks to more than {limits.MAX_UNPACK_RATIO} times its {packed:,} bytes "
            f"(MAX_UNPACK_RATIO): {_UNPACK}"
        )


_UNPACK = "if you trust it, unpack it yourself"


def gzip_chunks(path: Path) -> Iterator[bytes]:
    """The bytes in a .gz file."""
    try:
        with gzip.open(path) as file:
            capped = _Capped(path, file)  # type: ignore[arg-type]
            while chunk := capped.read(READ):
                yield chunk
    except LimitError:
        raise
    except Exception as error:
        raise _damaged(path, error) from None


def zip_chunks(path: Path, name: str) -> Iterator[bytes]:
    """The bytes of the one file `name` in a .zip."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [each for each in archive.infolist() if each.filename == name]
            if len(archive.infolist()) > limits.MAX_ARCHIVE_FILES or len(members) != 1:
                raise LimitError(
                    f"{path}: it has {len(members)} files {name!r} among "
                    f"{len(archive.infolist()):,}, but it must have one: take it again"
                )
            [member] = members
            kind = stat.S_IFMT(member.external_attr >> 16)
            if member.is_dir() or kind not in (0, stat.S_IFREG) or member.flag_bits & 1:
                raise LimitError(f"{path}: {name!r} is no plain file: take it again")
            given = 0
            with archive.open(member) as file:
                while chunk := file.read(READ):
                    given += len(chunk)
                    require_within(path, given, path.stat().st_size)
                    yield chunk
    except LimitError:
        raise
    except Exception as error:
        raise _damaged(path, error) from None


def tar_files(path: Path, pattern: str, largest: int) -> Iterator[tuple[re.Match[str], bytes]]:
    """Every file of a .tar.gz whose whole name matches, in the order of the archive.

    A file of more than `largest` bytes, or a name that stands there twice, is an error.
    """
    seen: set[str] = set()
    count = 0
    try:
        with gzip.open(path) as unpacked:
            # As a stream, through our own counter: a header cannot make it read past the cap.
            capped = _Capped(path, unpacked)  # type: ignore[arg-type]
            with tarfile.open(fileobj=capped, mode="r|") as archive:  # type: ignore[call-overload]
                for member in archive:
                    archive.members = []  # it would keep every header it has seen
                    count += 1
                    if count > limits.MAX_ARCHIVE_FILES:
                        raise LimitError(
                            f"{path}: it has more than {limits.MAX_ARCHIVE_FILES:,} files "
                            f"(MAX_ARCHIVE_FILES): {_UNPACK}"
                        )
                    match = re.fullmatch(pattern, member.name)
                    if not match or member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                        continue
                    if member.size > largest or member.name in seen:
                        raise LimitError(
                            f"{path}: {member.name} has {member.size:,} bytes or stands there "
                            f"twice, but a file has at most {largest:,}: take it again"
                        )
                    seen.add(member.name)
                    file = archive.extractfile(member)
                    assert file is not None, "a regular file can be read"
                    yield match, file.read()
    except LimitError:
        raise
    except Exception as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> ValueError:
    # Any exception: parsers of hostile input raise many, and each means the same to the user.
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return ValueError(f"{path}: it cannot be unpacked ({reason}): it is cut or damaged")
