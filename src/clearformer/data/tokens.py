"""Token files: a text encoded once, then mapped into memory, whatever its size.

Beside `NAME.bin` (the ids, little endian, as small as the vocabulary allows) lies `NAME.json`,
which says what they are. Both are checked when they are opened; reading a mapped file that
was cut meanwhile would end the process without a word (SIGBUS), so its size is asked for again
before every read.
"""

import glob
import hashlib
import json
import mmap
import os
import re
import shutil
import socket
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clearformer.data.texts import Progress, Text
from clearformer.text.tokenizer import Tokenizer, sha256

FORMAT = 1


class Tokens(Protocol):
    """Ids in a row that can be read from any place."""

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class TokenArray:
    """Ids in memory."""

    ids: NDArray[Any]

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        return self.ids[start:stop].astype(np.int64)


@dataclass(frozen=True)
class Description:
    """What is in a token file, and from what it was made."""

    format: int
    dtype: str
    count: int  # ids
    sha256: str  # of the ids
    tokenizer: str  # its sha256
    vocabulary: int
    text: str  # its name
    text_bytes: int  # for bits per byte
    text_sha256: str
    text_stamp: str | None


class TokenFile:
    """Ids on disk, mapped read-only."""

    def __init__(self, path: Path, description: Description) -> None:
        self.path = path
        self.description = description
        dtype = np.dtype(description.dtype).newbyteorder("<")
        self._size = description.count * dtype.itemsize
        try:
            with path.open("rb") as file:
                self._require_size(os.fstat(file.fileno()).st_size)
                self._map = mmap.mmap(file.fileno(), self._size, access=mmap.ACCESS_READ)
                self._file = os.dup(file.fileno())
                self._changed = os.fstat(self._file).st_mtime_ns
                weakref.finalize(self, os.close, self._file)
        except OSError as error:
            raise ValueError(
                f"{path}: the token file cannot be read ({error.strerror}): delete it, "
                f"and it will be made again"
            ) from None
        self._ids: NDArray[Any] = np.frombuffer(self._map, dtype)

    @property
    def sha256(self) -> str:
        """Identity of the ids; with the tokenizer's, it is that of the data."""
        return self.description.sha256

    @property
    def text_bytes(self) -> int:
        """Bytes of the text that the ids stand for: what bits per byte divides by."""
        return self.description.text_bytes

    def __len__(self) -> int:
        return self.description.count

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        self.check()
        return self._ids[start:stop].astype(np.int64)

    def check(self) -> None:
        """Refuse to go on if the mapped file was cut, has grown or was written to.

        The file that is mapped and not the one that now has its name: a new file with this
        name, or none at all, does not disturb whoever has the old one open.
        """
        status = os.fstat(self._file)
        self._require_size(status.st_size)
        if status.st_mtime_ns != self._changed:
            self._changed = status.st_mtime_ns
            self._require_written()

    def verify(self) -> None:
        """Read all of it: every id must be what was written."""
        self.check()
        self._require_written()

    def _require_written(self) -> None:
        if hashlib.sha256(self._map).hexdigest() != self.sha256:
            raise ValueError(
                f"{self.path}: the token file is not what was written: delete it, "
                f"and it will be made again"
            )

    def _require_size(self, size: int) -> None:
        if size != self._size:
            raise ValueError(
                f"{self.path}: the token file has {size:,} bytes, but {self._size:,} were "
                f"written: delete it, and it will be made again"
            )


def prepare(
    text: Text, tokenizer: Tokenizer, folder: Path, progress: Progress | None = None
) -> TokenFile:
    """The token file of a text in `folder`: the one that is there if it fits, or a new one.

    Another text or tokenizer has a file with another name, so whoever uses one keeps it.
    """
    identity = sha256(tokenizer)
    digest = hashlib.sha256(f"{text.stamp or text.sha256} {identity}".encode()).hexdigest()
    slug = re.sub(r"[^A-Za-z0-9]+", "-", Path(text.name).name).strip("-")[:40] or "text"
    path = folder / f"{slug}-{digest[:16]}.bin"
    old = _reusable(path, text, identity)
    if old is not None:
        return old
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _require_space(folder, text, tokenizer)
        description = _write(path, text, tokenizer, identity, progress)
        _replace(path.with_suffix(".json"), json.dumps(asdict(description), indent=1).encode())
    except OSError as error:
        raise ValueError(
            f"{folder}: the token file of {text.name} cannot be written there "
            f"({error.strerror or error}): free some space, or choose another folder"
        ) from None
    return TokenFile(path, description)


def open_tokens(path: Path) -> TokenFile:
    """A token file by the path of its .bin; damage is an error."""
    source = path.with_suffix(".json")
    try:
        values = json.loads(source.read_text(encoding="utf-8"))
        description = Description(**values)
        right = {"uint8", "uint16", "uint32"}
        if description.format != FORMAT or description.dtype not in right:
            raise ValueError("unknown format")
        if type(description.count) is not int or description.count < 1:
            raise ValueError("no count")
    except (OSError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{source}: it does not describe a token file ({error}): delete it, "
            f"and it will be made again"
        ) from None
    opened = TokenFile(path, description)
    opened.verify()
    return opened


def _reusable(path: Path, text: Text, identity: str) -> TokenFile | None:
    if not path.with_suffix(".json").exists():
        return None
    try:
        old = open_tokens(path)
    except ValueError:
        return None  # damaged: it is made again
    known = old.description
    unchanged = text.stamp is not None and text.stamp == known.text_stamp
    same = unchanged or known.text_sha256 == text.sha256
    return old if same and known.tokenizer == identity else None


def _require_space(folder: Path, text: Text, tokenizer: Tokenizer) -> None:
    """Say now what would be found out after hours; only bytes tell how many tokens there are."""
    free = shutil.disk_usage(folder).free
    if tokenizer.kind == "bytes" and text.size > free:
        raise ValueError(
            f"{text.name} is too large: its token file needs {text.size / 2**30:,.1f} GiB in "
            f"{folder}, but {free / 2**30:,.1f} GiB are free: make room, or take a part of it"
        )


def _write(
    path: Path, text: Text, tokenizer: Tokenizer, identity: str, progress: Progress | None
) -> Description:
    """Encode a chunk at a time, into a file that gets its name when it is whole."""
    dtype = next(d for d in ("uint8", "uint16", "uint32") if tokenizer.size <= np.iinfo(d).max + 1)
    little_endian = np.dtype(dtype).newbyteorder("<")
    count, digest = 0, hashlib.sha256()
    size, source = 0, hashlib.sha256()

    def seen() -> Any:
        nonlocal size
        for chunk in text.chunks():
            source.update(chunk)
            size += len(chunk)
            if progress is not None:
                progress(size, None)
            yield chunk

    temporary = _temporary(path)
    try:
        with temporary.open("wb") as file, text.explaining():
            for ids in tokenizer.encode_stream(seen()):
                data = ids.astype(little_endian).tobytes()
                digest.update(data)
                file.write(data)
                count += len(ids)
            file.flush()
            os.fsync(file.fileno())
        if not count:
            raise ValueError(f"{text.name}: it has no tokens, but a text is needed")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return Description(
        format=FORMAT,
        dtype=dtype,
        count=count,
        sha256=digest.hexdigest(),
        tokenizer=identity,
        vocabulary=tokenizer.size,
        text=text.name,
        text_bytes=size,
        text_sha256=source.hexdigest(),
        text_stamp=text.stamp,
    )


def _replace(path: Path, data: bytes) -> None:
    temporary = _temporary(path)
    temporary.write_bytes(data)
    os.replace(temporary, path)


def _temporary(path: Path) -> Path:
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
