"""Token files: a text encoded once, then memory-mapped.

`NAME.bin` holds the ids (little endian, the smallest integer type that fits the vocabulary) and
`NAME.json` describes them. A token file is identified by the sha256 of its text and of its
tokenizer, never by a file name or date: the text is read again at every start.

Both files are checked when they are opened. Reading a mapped file that was truncated meanwhile
would kill the process (SIGBUS), so its size is checked before every read.
"""

import hashlib
import json
import mmap
import os
import re
import shutil
import weakref
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clearformer.data.cache_files import open_owned, read_owned_json, replacing
from clearformer.data.texts import Fingerprint, Progress, TextSource, changed_while_read
from clearformer.text.tokenizer import Tokenizer, sha256

FORMAT = 2  # 1 was identified by the date of the text, and split some tokens of a stream
DTYPES = ("uint8", "uint16", "uint32")


class Tokens(Protocol):
    """A sequence of ids that can be read from any offset."""

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
    """Content and origin of a token file."""

    format: int
    dtype: str
    count: int  # ids
    sha256: str  # of the ids
    tokenizer: str  # its sha256
    vocabulary: int
    text: str  # its name
    text_bytes: int  # for bits per byte
    text_sha256: str


class TokenFile:
    """Ids on disk, mapped read-only."""

    def __init__(self, path: Path, description: Description) -> None:
        self.path = path
        self.description = description
        dtype = np.dtype(description.dtype).newbyteorder("<")
        self._size = description.count * dtype.itemsize
        try:
            with open_owned(path) as file:
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
        """Hash of the ids."""
        return self.description.sha256

    @property
    def text_bytes(self) -> int:
        """Bytes of the text, for bits per byte."""
        return self.description.text_bytes

    def __len__(self) -> int:
        return self.description.count

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        self.check()
        return self._ids[start:stop].astype(np.int64)

    def check(self) -> None:
        """ValueError if the mapped file changed its size or content.

        This checks the mapped file, not the one that has its name now: replacing or deleting the
        file does not affect a reader of the old one.
        """
        status = os.fstat(self._file)
        self._require_size(status.st_size)
        if status.st_mtime_ns != self._changed:
            self._changed = status.st_mtime_ns
            self._require_written()

    def verify(self) -> None:
        """Compare the hash of the content; ValueError if it differs."""
        self.check()
        self._require_written()

    def _require_written(self) -> None:
        intact = hashlib.sha256(self._map).hexdigest() == self.sha256
        if not intact or self._ids.max() >= self.description.vocabulary:
            raise ValueError(
                f"{self.path}: the token file was altered: delete it, and it will be made again"
            )

    def _require_size(self, size: int) -> None:
        if size != self._size:
            raise ValueError(
                f"{self.path}: the token file has {size:,} bytes, but {self._size:,} were "
                f"written: delete it, and it will be made again"
            )


def prepare(
    text: TextSource, tokenizer: Tokenizer, folder: Path, progress: Progress | None = None
) -> TokenFile:
    """The token file of a text in `folder`: the existing one if it is valid, or a new one.

    Another text or tokenizer has a file with another name, so that a file in use is never replaced.
    The text is read even if its token file exists, to compare its hash.
    """
    slug = re.sub(r"[^A-Za-z0-9]+", "-", Path(text.name).name).strip("-")[:40] or "text"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _require_space(folder, slug, text, tokenizer)
        measure = text.fingerprint
        identity = sha256(tokenizer)
        key = f"{FORMAT} {measure.sha256} {identity}"
        path = folder / f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.bin"
        old = _reusable(path, measure, tokenizer, identity)
        if old is not None:
            return old
        description = _write(path, text, tokenizer, identity, progress)
        with replacing(path.with_suffix(".json")) as file:
            file.write(json.dumps(asdict(description), indent=1).encode())
    except OSError as error:
        raise ValueError(
            f"{folder}: the token file of {text.name} cannot be written there "
            f"({error.strerror or error}): free some space, or choose another folder"
        ) from None
    return TokenFile(path, description)


def open_tokens(path: Path) -> TokenFile:
    """Open and verify a token file by the path of its .bin."""
    source = path.with_suffix(".json")
    try:
        description = Description(**read_owned_json(source))
        if description.format != FORMAT or description.dtype not in DTYPES:
            raise ValueError("unknown format")
        for name in ("count", "vocabulary", "text_bytes"):
            value = getattr(description, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is {value!r:.40}")
    except (OSError, TypeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(
            f"{source}: it does not describe a token file ({reason}): delete it, "
            f"and it will be made again"
        ) from None
    opened = TokenFile(path, description)
    opened.verify()
    return opened


def _reusable(
    path: Path, measure: Fingerprint, tokenizer: Tokenizer, identity: str
) -> TokenFile | None:
    """The existing token file, if its description matches the text and the tokenizer."""
    try:
        old = open_tokens(path)
    except ValueError:
        return None  # missing, damaged or of another user: it is made again
    description = old.description
    actual = (
        description.tokenizer,
        description.vocabulary,
        description.dtype,
        description.text_sha256,
        description.text_bytes,
    )
    expected = identity, tokenizer.size, _dtype(tokenizer), measure.sha256, measure.size
    return old if actual == expected else None


def _require_space(folder: Path, slug: str, text: TextSource, tokenizer: Tokenizer) -> None:
    """Check the disk space early; the size is known in advance for the bytes tokenizer only."""
    free = shutil.disk_usage(folder).free
    if tokenizer.kind != "bytes" or text.size <= free:
        return
    if all(path.lstat().st_size != text.size for path in folder.glob(f"{slug}-*.bin")):
        raise ValueError(
            f"{text.name} is too large: its token file needs {text.size / 2**30:,.1f} GiB in "
            f"{folder}, but {free / 2**30:,.1f} GiB are free: free some space, or use a part of it"
        )


def _dtype(tokenizer: Tokenizer) -> str:
    """The smallest integer type that holds every id."""
    return next(each for each in DTYPES if tokenizer.size <= np.iinfo(each).max + 1)


def _write(
    path: Path, text: TextSource, tokenizer: Tokenizer, identity: str, progress: Progress | None
) -> Description:
    """Encode chunk by chunk, into a file that gets its final name at the end."""
    dtype = _dtype(tokenizer)
    little_endian = np.dtype(dtype).newbyteorder("<")
    count, digest = 0, hashlib.sha256()
    size, source = 0, hashlib.sha256()

    def hashed_chunks() -> Iterator[bytes]:
        nonlocal size
        for chunk in text.chunks():
            source.update(chunk)
            size += len(chunk)
            if progress is not None:
                progress(size, None)
            yield chunk

    with replacing(path) as file, text.explaining():
        for ids in tokenizer.encode_stream(hashed_chunks()):
            data = ids.astype(little_endian).tobytes()
            digest.update(data)
            file.write(data)
            count += len(ids)
        if Fingerprint(size, source.hexdigest()) != text.fingerprint:
            raise changed_while_read(text.name)
        if not count:
            raise ValueError(f"{text.name}: it has no tokens, but a text is needed")
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
    )
