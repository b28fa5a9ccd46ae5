"""Reads untrusted archives; nothing is ever unpacked to disk.

Only regular files with the expected name are read, into memory or as a stream. Links, devices,
absolute paths and `..` are therefore harmless: they are not read. The unpacked size is limited.
"""

import gzip
import io
import re
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from clearformer import limits
from clearformer.data.texts import CHUNK_BYTES

_UNPACK = "if you trust it, unpack it yourself"


class LimitError(ValueError):
    """An archive exceeds a limit."""


class _LimitedReader(io.BufferedIOBase):
    """The unpacked bytes of a file in an archive, up to the limits."""

    def __init__(self, path: Path, file: IO[bytes] | gzip.GzipFile) -> None:
        self.path = path
        self.file = file
        self.packed = path.stat().st_size
        self.unpacked = 0

    def read(self, size: int | None = -1, /) -> bytes:
        chunk = self.file.read(-1 if size is None else size)
        self.unpacked += len(chunk)
        if self.unpacked > limits.MAX_ARCHIVE_BYTES:
            raise LimitError(
                f"{self.path}: it decompresses to more than {limits.MAX_ARCHIVE_BYTES:,} bytes "
                f"(MAX_ARCHIVE_BYTES): {_UNPACK}"
            )
        too_dense = self.unpacked > limits.MAX_UNPACK_RATIO * self.packed
        if self.unpacked > limits.RATIO_FREE_BYTES and too_dense:
            raise LimitError(
                f"{self.path}: it decompresses to more than {limits.MAX_UNPACK_RATIO} times its "
                f"{self.packed:,} bytes (MAX_UNPACK_RATIO): {_UNPACK}"
            )
        return chunk

    def chunks(self) -> Iterator[bytes]:
        while chunk := self.read(CHUNK_BYTES):
            yield chunk


@contextmanager
def _reporting_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except LimitError:
        raise
    except Exception as error:  # parsers raise many kinds on damaged input
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{path}: it cannot be unpacked ({reason}): it is truncated or damaged; get it again"
        ) from None


def gzip_chunks(path: Path) -> Iterator[bytes]:
    """The bytes in a .gz file."""
    with _reporting_damage(path), gzip.open(path) as file:
        yield from _LimitedReader(path, file).chunks()


def zip_chunks(path: Path, name: str) -> Iterator[bytes]:
    """The bytes of the one file `name` in a .zip."""
    with _reporting_damage(path), zipfile.ZipFile(path) as archive:
        members = [each for each in archive.infolist() if each.filename == name]
        if len(archive.infolist()) > limits.MAX_ARCHIVE_FILES or len(members) != 1:
            raise LimitError(
                f"{path}: it has {len(members)} files {name!r} among "
                f"{len(archive.infolist()):,}, but it must have one: download it again"
            )
        [member] = members
        kind = stat.S_IFMT(member.external_attr >> 16)
        if member.is_dir() or kind not in (0, stat.S_IFREG) or member.flag_bits & 1:
            raise LimitError(f"{path}: {name!r} is not a regular file: download the archive again")
        with archive.open(member) as file:
            yield from _LimitedReader(path, file).chunks()


def tar_files(path: Path, pattern: str, largest: int) -> Iterator[tuple[re.Match[str], bytes]]:
    """Every file of a .tar.gz whose whole name matches, in the order of the archive.

    A file of more than `largest` bytes, or a name that occurs twice, is an error.
    """
    seen: set[str] = set()
    with _reporting_damage(path), gzip.open(path) as unpacked:
        # As a stream through our own counter: a header cannot make it read past the limit.
        limited = _LimitedReader(path, unpacked)
        with tarfile.open(fileobj=limited, mode="r|") as archive:
            for count, member in enumerate(archive, start=1):
                archive.members = []  # type: ignore[attr-defined]  # it would keep every header
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
                        f"{path}: {member.name} has {member.size:,} bytes or occurs twice, but a "
                        f"file has at most {largest:,} bytes: download it again"
                    )
                seen.add(member.name)
                file = archive.extractfile(member)
                assert file is not None, "a regular file can be read"
                yield match, file.read()
