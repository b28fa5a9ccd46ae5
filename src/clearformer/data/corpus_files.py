"""Corpora in files: their locations, hashes and formats."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clearformer.data.archives import gzip_chunks, tar_files, zip_chunks
from clearformer.data.download import Pinned, fetch, require_pinned
from clearformer.data.files import unreadable, watched
from clearformer.data.tables import Pairs, Table
from clearformer.data.texts import READ, Progress, SourceFile, TextSource


@dataclass(frozen=True)
class DataFolders:
    """Folders to search: the given one, then the cache, which also receives downloads."""

    folder: Path | None = None
    cache: Path | None = None
    progress: Progress | None = None

    @classmethod
    def from_environment(cls, folder: Path | None = None) -> DataFolders:
        """`folder` or else CLEARFORMER_DATA, and the user's cache."""
        named = os.environ.get("CLEARFORMER_DATA")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearformer"
        return cls(folder or (Path(named) if named else None), cache)


SHAKESPEARE = Pinned(
    "tinyshakespeare.txt",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    1_115_394,
    (("sha256", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"),),
)
ENWIK8 = Pinned(
    "enwik8.zip",
    "https://mattmahoney.net/dc/enwik8.zip",
    36_445_475,
    (("sha256", "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc"),),
)
ENWIK8_CONTENT = (
    100_000_000,
    "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
)
ENWIK8_PARTS = {
    "train": (0, 90_000_000),
    "validation": (90_000_000, 95_000_000),
    "test": (95_000_000, 100_000_000),
}
IMDB = Pinned(
    "aclImdb_v1.tar.gz",
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    84_125_825,
    (
        ("md5", "7c2ac02c03563afcf9b574c7e56c153a"),
        ("sha256", "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"),
    ),
)
REVIEW = 2**20  # bytes of a review at the most


def shakespeare(part: str, places: DataFolders) -> TextSource:
    path = _locate(("tinyshakespeare.txt",), places) or _download(SHAKESPEARE, places)
    unchanged = watched(path, path.stat())
    require_pinned(path, SHAKESPEARE)
    return TextSource(
        "shakespeare", (SourceFile(str(path), partial(_plain, path), unchanged=unchanged),)
    )


def enwik8(part: str, places: DataFolders) -> TextSource:
    path = _locate(("enwik8", "enwik8.zip", "enwik8.gz"), places) or _download(ENWIK8, places)
    opened = {".zip": partial(zip_chunks, path, "enwik8"), ".gz": partial(gzip_chunks, path)}
    unpack = opened.get(path.suffix, partial(_plain, path))
    # The size is known: any other is refused when the file is read.
    piece = SourceFile(str(path), lambda: _verified(unpack(), path), size=ENWIK8_CONTENT[0])
    return TextSource("enwik8", (piece,)).part(*ENWIK8_PARTS[part])


def _verified(chunks: Iterator[bytes], path: Path) -> Iterator[bytes]:
    """Yield all chunks; ValueError at the end unless they were enwik8."""
    size, digest = 0, hashlib.sha256()
    for chunk in chunks:
        size += len(chunk)
        digest.update(chunk)
        yield chunk
    if (size, digest.hexdigest()) != ENWIK8_CONTENT:
        raise ValueError(
            f"{path}: its {size:,} bytes are not the 100,000,000 of enwik8: "
            f"delete it, and download it again from {ENWIK8.url}"
        )


def imdb(part: str, places: DataFolders) -> Table:
    path = _locate(("aclImdb_v1.tar.gz", "aclImdb.tar.gz"), places) or _download(IMDB, places)
    if path.name == IMDB.name:
        require_pinned(path, IMDB)
    below = {"train": "train/(pos|neg)", "test": "test/(pos|neg)", "unlabelled": "train/(unsup)"}
    pattern = rf"(?:\./)?aclImdb/{below[part]}/([0-9]+)_[0-9]+\.txt"
    found = []
    for match, data in tar_files(path, pattern, largest=REVIEW):
        try:
            found.append((match[1], int(match[2]), data.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: byte {error.start} of {match[0]} is not UTF-8: take it again"
            ) from None
    if not found:
        raise ValueError(f"{path}: it has no reviews in {below[part]}: take it from {IMDB.url}")
    found.sort()  # by label and number: archives of the same files differ in order
    labels = tuple(label for label, _, _ in found)
    texts = tuple(review for _, _, review in found)
    return Table(f"imdb {part}", texts, None if part == "unlabelled" else labels)


def multi30k(part: str, places: DataFolders) -> Pairs:
    stem = {"train": "train", "validation": "val", "test": "test_2016_flickr"}[part]
    sides = []
    for language in ("en", "de"):
        file = f"{stem}.{language}.gz"
        path = _locate((f"multi30k/{file}", file), places)
        if path is None:
            address = "https://github.com/multi30k/dataset (data/task1/raw)"
            raise _fetch_yourself("multi30k", file, address, places, "multi30k")
        text = TextSource(str(path), (SourceFile(str(path), partial(gzip_chunks, path)),))
        lines = "".join(text.decoded()).removesuffix("\n").split("\n")
        sides.append(tuple(line.strip() for line in lines))
    english, german = sides
    if len(english) != len(german):
        raise ValueError(
            f"multi30k: {stem} has {len(english):,} lines in English and {len(german):,} in "
            f"German, but they must pair: take both files again"
        )
    return Pairs(f"multi30k {part}", english, german)


def wikitext2(part: str, places: DataFolders) -> TextSource:
    stem = {"train": "train", "validation": "valid", "test": "test"}[part]
    member = f"wikitext-2-raw/wiki.{stem}.raw"
    path = _locate((member, "wikitext-2-raw-v1.zip"), places)
    if path is None:
        address = "https://huggingface.co/datasets/ggml-org/ci"
        raise _fetch_yourself("wikitext2", "wikitext-2-raw-v1.zip", address, places)
    read = partial(zip_chunks, path, member) if path.suffix == ".zip" else partial(_plain, path)
    piece = SourceFile(f"{path} {stem}", read, unchanged=watched(path, path.stat()))
    return TextSource(f"wikitext2 {part}", (piece,))


def _locate(names: Sequence[str], places: DataFolders) -> Path | None:
    """The first of these files, in the folder or else in the cache."""
    if places.folder is not None and not places.folder.is_dir():
        raise ValueError(f"{places.folder}: there is no such folder, but data was to be in it")
    folders = [each for each in (places.folder, places.cache) if each is not None]
    found = (folder / name for folder in folders for name in names)
    return next((path for path in found if path.is_file()), None)


def _download(pinned: Pinned, places: DataFolders) -> Path:
    if places.cache is None:
        folder = places.folder or "a folder"
        raise ValueError(
            f"{pinned.name} is not there: fetch it from {pinned.url}, put it into {folder} "
            f"and name that folder"
        )
    try:
        return fetch(pinned, places.cache, places.progress)
    except OSError as error:
        raise ValueError(
            f"{places.cache}: {pinned.name} cannot be stored there ({error.strerror or error})"
        ) from None


def _fetch_yourself(
    name: str, file: str, address: str, places: DataFolders, below: str = "."
) -> ValueError:
    folder = places.folder or places.cache
    where = "a folder that you name" if folder is None else str(folder / below)
    return ValueError(
        f"{name}: {file} is not there, and without a published hash it is not downloaded: "
        f"fetch it from {address} and put it into {where}"
    )


def _plain(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(READ):
                yield chunk
    except OSError as error:
        raise unreadable(path, error) from None
