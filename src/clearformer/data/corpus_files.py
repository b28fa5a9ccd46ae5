"""Corpora in files: their locations, hashes and formats."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clearformer.data.archives import tar_files, zip_chunks
from clearformer.data.download import Pinned, fetch, require_pinned
from clearformer.data.files import file_chunks, watched
from clearformer.data.tables import Pairs, Table
from clearformer.data.texts import Progress, SourceFile, TextSource


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
ENWIK8_CONTENT = (100_000_000, "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8")
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
MAX_REVIEW_BYTES = 2**20


def shakespeare(part: str, folders: DataFolders) -> TextSource:
    path = _locate(("tinyshakespeare.txt",), folders) or _download(SHAKESPEARE, folders)
    unchanged = watched(path, path.stat())
    require_pinned(path, SHAKESPEARE)
    return TextSource(
        "shakespeare", (SourceFile(str(path), partial(file_chunks, path), unchanged=unchanged),)
    )


def enwik8(part: str, folders: DataFolders) -> TextSource:
    path = _locate(("enwik8", "enwik8.zip", "enwik8.gz"), folders) or _download(ENWIK8, folders)
    in_zip = path.suffix == ".zip"
    unpack = partial(zip_chunks, path, "enwik8") if in_zip else partial(file_chunks, path)
    # The size is known in advance, and checked when the file is read.
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


def imdb(part: str, folders: DataFolders) -> Table:
    path = _locate(("aclImdb_v1.tar.gz", "aclImdb.tar.gz"), folders) or _download(IMDB, folders)
    if path.name == IMDB.name:
        require_pinned(path, IMDB)
    subfolder = {
        "train": "train/(pos|neg)",
        "test": "test/(pos|neg)",
        "unlabelled": "train/(unsup)",
    }
    pattern = rf"(?:\./)?aclImdb/{subfolder[part]}/([0-9]+)_[0-9]+\.txt"
    reviews = []
    for match, data in tar_files(path, pattern, largest=MAX_REVIEW_BYTES):
        try:
            reviews.append((match[1], int(match[2]), data.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: byte {error.start} of {match[0]} is not UTF-8: download it again"
            ) from None
    if not reviews:
        raise ValueError(f"{path}: it has no reviews in {subfolder[part]}: take it from {IMDB.url}")
    reviews.sort()  # by label and number: archives of the same files differ in order
    labels = tuple(label for label, _, _ in reviews)
    texts = tuple(review for _, _, review in reviews)
    return Table(f"imdb {part}", texts, None if part == "unlabelled" else labels)


def multi30k(part: str, folders: DataFolders) -> Pairs:
    stem = {"train": "train", "validation": "val", "test": "test_2016_flickr"}[part]
    sides = []
    for language in ("en", "de"):
        file = f"{stem}.{language}.gz"
        path = _locate((f"multi30k/{file}", file), folders)
        if path is None:
            address = "https://github.com/multi30k/dataset (data/task1/raw)"
            raise _fetch_yourself("multi30k", file, address, folders, "multi30k")
        text = TextSource(str(path), (SourceFile(str(path), partial(file_chunks, path)),))
        lines = "".join(text.decoded()).removesuffix("\n").split("\n")
        sides.append(tuple(line.strip() for line in lines))
    english, german = sides
    if len(english) != len(german):
        raise ValueError(
            f"multi30k: {stem} has {len(english):,} lines in English and {len(german):,} in "
            f"German, but they must match line by line: download both files again"
        )
    return Pairs(f"multi30k {part}", english, german)


def wikitext2(part: str, folders: DataFolders) -> TextSource:
    stem = {"train": "train", "validation": "valid", "test": "test"}[part]
    member = f"wikitext-2-raw/wiki.{stem}.raw"
    path = _locate((member, "wikitext-2-raw-v1.zip"), folders)
    if path is None:
        address = "https://huggingface.co/datasets/ggml-org/ci"
        raise _fetch_yourself("wikitext2", "wikitext-2-raw-v1.zip", address, folders)
    read = (
        partial(zip_chunks, path, member) if path.suffix == ".zip" else partial(file_chunks, path)
    )
    piece = SourceFile(f"{path} {stem}", read, unchanged=watched(path, path.stat()))
    return TextSource(f"wikitext2 {part}", (piece,))


def _locate(names: Sequence[str], folders: DataFolders) -> Path | None:
    """The first of these files, in the folder or else in the cache."""
    if folders.folder is not None and not folders.folder.is_dir():
        raise ValueError(f"{folders.folder}: the data folder does not exist")
    candidates_in = [each for each in (folders.folder, folders.cache) if each is not None]
    found = (folder / name for folder in candidates_in for name in names)
    return next((path for path in found if path.is_file()), None)


def _download(pinned: Pinned, folders: DataFolders) -> Path:
    if folders.cache is None:
        folder = folders.folder or "a folder"
        raise ValueError(
            f"{pinned.name} is missing: download it from {pinned.url}, put it into {folder} and "
            f"set --data-dir to that folder"
        )
    try:
        return fetch(pinned, folders.cache, folders.progress)
    except OSError as error:
        raise ValueError(
            f"{folders.cache}: {pinned.name} cannot be stored there ({error.strerror or error})"
        ) from None


def _fetch_yourself(
    name: str, file: str, address: str, folders: DataFolders, subfolder: str = "."
) -> ValueError:
    folder = folders.folder or folders.cache
    where = "a folder for --data-dir" if folder is None else str(folder / subfolder)
    return ValueError(
        f"{name}: {file} is missing, and without a published hash it is not downloaded: "
        f"download it from {address} and put it into {where}"
    )
