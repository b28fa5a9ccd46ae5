"""Downloads files of known size and hash, and resumes interrupted downloads.

Partial content is kept in `NAME.part`, so that the next attempt resumes there; the file gets its
name once size and hash are right.
"""

import hashlib
import http.client
import os
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from clearformer.data.texts import CHUNK_BYTES, Progress

ATTEMPTS = 3  # without any new data
TIMEOUT = 30.0  # seconds without a response


@dataclass(frozen=True)
class Pinned:
    """A file on the web with its expected size and hashes."""

    name: str
    url: str
    size: int
    hashes: tuple[tuple[str, str], ...]  # algorithm and digest


def fetch(pinned: Pinned, folder: Path, progress: Progress | None = None) -> Path:
    """The path of the file in `folder`, downloaded if it is missing."""
    path = folder / pinned.name
    if path.exists():
        require_pinned(path, pinned)
        return path
    _require_secure(pinned.url)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{pinned.name}.part"
    if _size(part) > pinned.size:
        part.unlink()
    failures = 0
    reason = "the connection was closed"
    while _size(part) < pinned.size:
        before = _size(part)
        try:
            _continue(pinned, part, progress)
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", None) or error) or type(error).__name__
        failures = 0 if _size(part) > before else failures + 1
        if failures == ATTEMPTS:
            arrived = f"{_size(part):,} of {pinned.size:,} bytes"
            raise ValueError(
                f"{pinned.url} could not be downloaded ({reason}; {arrived} received): try again, "
                f"or get it elsewhere and put it into {folder} as {pinned.name}"
            )
    try:
        require_pinned(part, pinned)
    except ValueError:
        part.unlink()  # resuming from wrong bytes cannot succeed
        raise ValueError(
            f"{pinned.url} is not the expected file: the download has another size or hash and was "
            f"deleted; get the right one elsewhere and put it into {folder} as {pinned.name}"
        ) from None
    with part.open("r+b") as file:
        os.fsync(file.fileno())
    os.replace(part, path)
    return path


def require_pinned(path: Path, pinned: Pinned) -> None:
    """ValueError for a file with another size or hash."""
    size = _size(path)
    valid = size == pinned.size
    for algorithm, digest in pinned.hashes if valid else ():
        with path.open("rb") as file:
            valid = valid and hashlib.file_digest(file, algorithm).hexdigest() == digest
    if not valid:
        raise ValueError(
            f"{path}: it is damaged or another file ({size:,} bytes instead of {pinned.size:,} "
            f"with a known hash): delete it, and download it again from {pinned.url}"
        )


def _continue(pinned: Pinned, part: Path, progress: Progress | None) -> None:
    """Request the missing bytes and append what is received."""
    offset = _size(part)
    headers = {"User-Agent": "clearformer", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    request = urllib.request.Request(pinned.url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        _require_secure(answer.url)
        # A server without range requests sends the whole file again.
        range_start = f"bytes {offset}-"
        resumed = answer.status == 206 and answer.headers["Content-Range"].startswith(range_start)
        with part.open("ab" if resumed else "wb") as file:
            done = offset if resumed else 0
            while done < pinned.size and (
                chunk := answer.read(min(CHUNK_BYTES, pinned.size - done))
            ):
                file.write(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, pinned.size)


def _require_secure(url: str) -> None:
    """Only https; http to this machine is for tests."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and (parts.scheme, parts.hostname) != ("http", "127.0.0.1"):
        raise ValueError(f"{url} is not https: nothing is downloaded from it")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
