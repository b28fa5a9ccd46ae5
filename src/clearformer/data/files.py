"""The user's text files: a file, a folder, a glob, or standard input."""

import glob
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO

from clearformer.data.archives import gzip_chunks
from clearformer.data.texts import CHUNK_BYTES, UTF8_MARK, SourceFile, TextSource, in_memory

TEXTS = (".txt", ".md", ".txt.gz", ".md.gz")  # extensions of the text files in a folder


class EmptyInputError(ValueError):
    """Standard input is empty."""

    def __init__(self) -> None:
        super().__init__("standard input is empty, but a text is needed: give one, or pipe one in")


def open_text(
    source: str | os.PathLike[str], stdin: BinaryIO | None = None, include: str | None = None
) -> TextSource:
    """The text of a file (also .gz), of all text files in a folder or of a glob, or of `-`.

    ValueError if it is missing, unreadable or empty; UTF-8 is checked when a tokenizer reads it.
    Several files are concatenated in the order of their paths. Of a folder, `include` chooses the
    files: one or several patterns such as *.py, separated by commas.
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
            listing = list_folder(path, include)
            which = f"files that end in {', '.join(TEXTS[:2])}" if include is None else include
            return _several(name, list(listing.read), f"{which}{listing.hint(include)}")
        if path.exists():
            piece = _piece(path)
            if piece is None:
                raise ValueError(f"{path}: it is empty, but a text is needed")
            return TextSource(name, (piece,))
        if glob.has_magic(name):
            paths = [Path(each) for each in glob.glob(name, recursive=True)]
            return _several(name, sorted(each for each in paths if each.is_file()), "files")
    except OSError as error:
        raise unreadable(path, error) from None
    raise ValueError(f"{path}: there is no such file or folder (looked in {Path.cwd()})")


def read_file(path: Path) -> TextSource:
    """A single file, for tables; compressed or not."""
    if path.is_dir():
        raise ValueError(f"{path}: it is a folder, but one file is needed")
    return open_text(path)


def unreadable(path: Path, error: OSError) -> ValueError:
    """The error for a file that cannot be read."""
    named = error.filename if isinstance(error.filename, str) else path
    return ValueError(f"{named}: it cannot be read ({error.strerror or error}): check it")


def _several(name: str, paths: list[Path], noun: str) -> TextSource:
    pieces = tuple(piece for path in paths if (piece := _piece(path)))
    if not pieces:
        raise ValueError(f"{name}: there are no non-empty {noun}")
    return TextSource(name, pieces)


@dataclass(frozen=True)
class FolderListing:
    """Which files of a folder are read, and how many are not, by reason."""

    read: tuple[Path, ...]
    size: int  # bytes that are read, as they are on disk
    skipped: Mapping[str, int]

    def lines(self) -> list[str]:
        """The listing as `clearformer data` prints it."""
        lines = [f"{len(self.read):,} files are read, {self.size:,} bytes"]
        lines += [f"  skipped: {count:,} {reason}" for reason, count in self.skipped.items()]
        return lines

    def hint(self, include: str | None) -> str:
        """What to do if nothing is read."""
        if not self.skipped:
            return ""
        skipped = ", ".join(f"{count:,} {reason}" for reason, count in self.skipped.items())
        advice = '; --include "*.EXTENSION" reads others' if include is None else ""
        return f" (skipped: {skipped}{advice})"


def list_folder(folder: Path, include: str | None = None) -> FolderListing:
    """The text files in a folder and its subfolders, sorted by path; `include` as in `open_text`.

    Hidden files are skipped, and so are binary ones where `include` would take them.
    """
    patterns = None if include is None else [each.strip() for each in include.split(",")]
    files: list[tuple[str, Path]] = []
    skipped: Counter[str] = Counter()
    size = 0
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        inside = path.relative_to(folder)
        reason = _reason(path, inside, patterns)
        if reason is not None:
            skipped[reason] += 1
            continue
        files.append((inside.as_posix(), path))
        size += path.stat().st_size
    ordered = dict(sorted(skipped.items(), key=lambda item: (-item[1], item[0])))
    return FolderListing(tuple(path for _, path in sorted(files)), size, ordered)


def _reason(path: Path, inside: Path, patterns: Sequence[str] | None) -> str | None:
    """Why a file of a folder is not read; None: it is."""
    if any(part.startswith(".") for part in inside.parts):
        return "hidden"
    if patterns is None:
        if not path.name.lower().endswith(TEXTS):
            return f"that end in {path.suffix.lower()}" if path.suffix else "without an extension"
    elif not any(fnmatch(path.name, each) or fnmatch(inside.as_posix(), each) for each in patterns):
        return "that do not match"
    if not path.stat().st_size:
        return "empty"
    if patterns is not None and path.suffix != ".gz":
        with path.open("rb") as file:
            if b"\0" in file.read(8192):
                return "that are binary, not text"
    return None


def _piece(path: Path) -> SourceFile | None:
    """A file as a piece of text; None if it is empty."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        if not stat.S_ISFIFO(status.st_mode):
            raise ValueError(f"{path}: it is a device, but a file is needed")
        data = path.read_bytes().removeprefix(UTF8_MARK)  # a pipe can be read once
        return in_memory(str(path), data) if data else None
    first = next(file_chunks(path, 0), b"")
    lead = len(UTF8_MARK) if first.startswith(UTF8_MARK) else 0
    if len(first) == lead:
        return None
    packed = path.suffix == ".gz"
    return SourceFile(
        str(path),
        lambda: file_chunks(path, lead),
        lead,
        size=None if packed else status.st_size - lead,
        read_from=None if packed else lambda start: file_chunks(path, lead + start),
        unchanged=watched(path, status),
    )


def watched(path: Path, status: os.stat_result) -> Callable[[], bool]:
    """A function that returns whether a file is unchanged since this status.

    It also compares the inode and ctime, which user programs cannot set.
    """

    def key(result: os.stat_result) -> tuple[int, ...]:
        times = result.st_mtime_ns, result.st_ctime_ns
        return result.st_dev, result.st_ino, result.st_size, *times

    def unchanged() -> bool:
        try:
            return key(path.stat()) == key(status)
        except OSError:
            return False

    return unchanged


def file_chunks(path: Path, lead: int = 0) -> Iterator[bytes]:
    """The uncompressed bytes of a file, without the first `lead`."""
    if path.suffix == ".gz":
        for chunk in gzip_chunks(path):
            yield chunk[lead:]
            lead = 0
        return
    try:
        with path.open("rb") as file:
            file.seek(lead)
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise unreadable(path, error) from None
