"""Texts of one's own: a file, a folder, a glob, or standard input."""

import glob
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from clearformer.data.archives import gzip_chunks
from clearformer.data.texts import READ, UTF8_MARK, SourceFile, TextSource, in_memory

TEXTS = (".txt", ".md", ".txt.gz", ".md.gz")  # what counts as text in a folder


class EmptyInputError(ValueError):
    """Nothing came through standard input."""

    def __init__(self) -> None:
        super().__init__("standard input is empty, but a text is needed: give one, or pipe one in")


def open_text(source: str | os.PathLike[str], stdin: BinaryIO | None = None) -> TextSource:
    """The text in a file (or .gz), in all texts of a folder, of a glob, or from `-`.

    It is known to be there, readable and not empty; whether it is text in UTF-8 shows when a
    tokenizer that needs it reads it. Several files follow each other sorted by path.
    """
    name = os.fspath(source)
    if name == "-":
        data = (stdin or sys.stdin.buffer).read().removeprefix(UTF8_MARK)
        if not data:
            raise EmptyInputError
        return TextSource("standard input", (in_memory("standard input", data),))
    path = Path(name)
    try:
        if path.is_dir():
            return _several(name, _texts_below(path), f"files that end in {', '.join(TEXTS[:2])}")
        if path.exists():
            piece = _piece(path)
            if piece is None:
                raise ValueError(f"{path}: it is empty, but a text is needed")
            return TextSource(name, (piece,))
        if glob.has_magic(name):
            found = [Path(each) for each in glob.glob(name, recursive=True)]
            return _several(name, sorted(each for each in found if each.is_file()), "files")
    except OSError as error:
        raise unreadable(path, error) from None
    raise ValueError(f"{path}: there is no such file or folder (looked in {Path.cwd()})")


def read_file(path: Path) -> TextSource:
    """One file that must be one, for tables; packed or not."""
    if path.is_dir():
        raise ValueError(f"{path}: it is a folder, but one file is needed")
    return open_text(path)


def unreadable(path: Path, error: OSError) -> ValueError:
    """What the system said, about which file."""
    named = error.filename if isinstance(error.filename, str) else path
    return ValueError(f"{named}: it cannot be read ({error.strerror or error}): check it")


def _several(name: str, paths: list[Path], wanted: str) -> TextSource:
    pieces = tuple(piece for path in paths if (piece := _piece(path)))
    if not pieces:
        raise ValueError(f"{name}: there are no {wanted} with anything in them")
    return TextSource(name, pieces)


def _texts_below(folder: Path) -> list[Path]:
    """All texts, in subfolders too, but not in hidden ones; in an order that is everywhere one."""
    found = []
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inside.parts)
        if path.name.lower().endswith(TEXTS) and not hidden and path.is_file():
            found.append((inside.as_posix(), path))
    return [path for _, path in sorted(found)]


def _piece(path: Path) -> SourceFile | None:
    """A file as a piece of text; None if there is nothing in it."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        if not stat.S_ISFIFO(status.st_mode):
            raise ValueError(f"{path}: it is a device, but a file is needed")
        data = path.read_bytes().removeprefix(UTF8_MARK)  # a pipe can be read once
        return in_memory(str(path), data) if data else None
    first = next(_chunks(path, 0), b"")
    lead = len(UTF8_MARK) if first.startswith(UTF8_MARK) else 0
    if len(first) == lead:
        return None
    packed = path.suffix == ".gz"
    return SourceFile(
        str(path),
        lambda: _chunks(path, lead),
        lead,
        size=None if packed else status.st_size - lead,
        read_from=None if packed else lambda start: _chunks(path, lead + start),
        unchanged=watched(path, status),
    )


def watched(path: Path, status: os.stat_result) -> Callable[[], bool]:
    """Whether a file still has this status: if not, its content has to be looked at again.

    With its inode and the time that the system itself keeps (ctime), which no tool can set.
    """

    def known(found: os.stat_result) -> tuple[int, ...]:
        times = found.st_mtime_ns, found.st_ctime_ns
        return found.st_dev, found.st_ino, found.st_size, *times

    def unchanged() -> bool:
        try:
            return known(path.stat()) == known(status)
        except OSError:
            return False

    return unchanged


def _chunks(path: Path, lead: int) -> Iterator[bytes]:
    """The bytes of a file, unpacked, without the first `lead`."""
    if path.suffix == ".gz":
        for chunk in gzip_chunks(path):
            yield chunk[lead:]
            lead = 0
        return
    try:
        with path.open("rb") as file:
            file.seek(lead)
            while chunk := file.read(READ):
                yield chunk
    except OSError as error:
        raise unreadable(path, error) from None
