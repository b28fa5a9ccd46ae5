"""Untrusted archives: only expected files are read, nothing is written, sizes are limited."""

import gzip
import re
import tarfile
import zipfile

import pytest

from clearformer.data.archives import gzip_chunks, tar_files, zip_chunks
from clearformer.selftest import malicious_files

NAME = r"a/(pos|neg)/([0-9]+)\.txt"


def make_tar(path, *members):
    return malicious_files.tar(path, members)


def names(path, largest=1000):
    return [(match[0], data) for match, data in tar_files(path, NAME, largest)]


@pytest.fixture
def quiet_folder(tmp_path):
    """After the test there is nothing but the archive."""
    folder = tmp_path / "inner" / "folder"
    folder.mkdir(parents=True)
    yield folder
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert {name for name in found if not name.endswith(("gz", "zip"))} == {"inner", "inner/folder"}


def test_reads_expected_files_in_order(quiet_folder):
    path = make_tar(
        quiet_folder / "a.tar.gz",
        ("a/pos/2.txt", b"two"),
        ("a/README", b"no"),
        ("a/neg/1.txt", b""),
    )
    assert names(path) == [("a/pos/2.txt", b"two"), ("a/neg/1.txt", b"")]


LINKS = {"linkname": "/etc/passwd"}
IGNORED = {
    "absolute": ("/a/pos/1.txt", b"x"),
    "climbing": ("a/pos/../../../../evil.txt", b"x"),
    "climbing to a name that fits": ("../a/pos/1.txt", b"x"),
    "symbolic link": ("a/pos/1.txt", {"type": tarfile.SYMTYPE, **LINKS}),
    "hard link": ("a/pos/1.txt", {"type": tarfile.LNKTYPE, **LINKS}),
    "device": ("a/pos/1.txt", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}),
    "pipe": ("a/pos/1.txt", {"type": tarfile.FIFOTYPE}),
    "folder": ("a/pos/1.txt", {"type": tarfile.DIRTYPE}),
    "newline in the name": ("a/pos/1.txt\n", b"x"),
    "longer name": ("a/pos/1.txt.sh", b"x"),
}


@pytest.mark.parametrize("kind", IGNORED)
def test_ignores_other_members(quiet_folder, kind):
    path = make_tar(quiet_folder / "a.tar.gz", IGNORED[kind], ("a/pos/9.txt", b"fine"))
    assert names(path) == [("a/pos/9.txt", b"fine")]


def test_rejects_archive_over_limits(quiet_folder, monkeypatch):
    path = make_tar(quiet_folder / "a.tar.gz", ("a/pos/1.txt", b"x" * 11), ("a/pos/2.txt", b"y"))
    with pytest.raises(
        ValueError,
        match=r"a/pos/1.txt has 11 bytes or occurs twice, but a file has at most 10",
    ):
        names(path, largest=10)
    monkeypatch.setattr("clearformer.limits.MAX_ARCHIVE_FILES", 1)
    with pytest.raises(
        ValueError,
        match=r"more than 1 files \(MAX_ARCHIVE_FILES\): if you trust it, unpack it yourself",
    ):
        names(path)


def test_rejects_duplicate_name(quiet_folder):
    path = make_tar(quiet_folder / "a.tar.gz", ("a/pos/1.txt", b"x"), ("a/pos/1.txt", b"y"))
    with pytest.raises(ValueError, match=r"a/pos/1.txt has 1 bytes or occurs twice"):
        names(path)


def test_rejects_decompression_bomb(quiet_folder, monkeypatch):
    path = quiet_folder / "bomb.gz"
    path.write_bytes(gzip.compress(b"0" * 5_000_000, 9))
    assert sum(map(len, gzip_chunks(path))) == 5_000_000  # so little does no harm
    monkeypatch.setattr("clearformer.limits.RATIO_FREE_BYTES", 2_000_000)
    size = path.stat().st_size
    sentence = (
        f"{path}: it decompresses to more than 200 times its {size:,} bytes (MAX_UNPACK_RATIO): "
        f"if you trust it"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        list(gzip_chunks(path))
    tar = make_tar(quiet_folder / "bomb.tar.gz", ("other", b"0" * 5_000_000), ("a/pos/1.txt", b"x"))
    with pytest.raises(ValueError, match="it decompresses to more than 200 times"):
        names(tar)  # even where the large file is none of ours
    packed = quiet_folder / "bomb.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("it", b"0" * 5_000_000)
    with pytest.raises(ValueError, match="it decompresses to more than 200 times"):
        list(zip_chunks(packed, "it"))
    monkeypatch.setattr("clearformer.limits.MAX_ARCHIVE_BYTES", 1_000_000)
    with pytest.raises(ValueError, match="it decompresses to more than 1,000,000 bytes"):
        list(gzip_chunks(path))


def test_rejects_oversized_tar_header(quiet_folder, monkeypatch):
    """A long name is read whole into memory by tarfile: the counter stops it."""
    monkeypatch.setattr("clearformer.limits.RATIO_FREE_BYTES", 2_000_000)
    path = make_tar(quiet_folder / "a.tar.gz", ("a/" + "x" * 5_000_000, b""), ("a/pos/1.txt", b"x"))
    with pytest.raises(ValueError, match="it decompresses to more than 200 times"):
        names(path)


def test_rejects_truncated_and_damaged_archives(quiet_folder):
    good = make_tar(
        quiet_folder / "good.tar.gz", ("a/pos/1.txt", bytes(range(256)) * 40)
    ).read_bytes()
    path = quiet_folder / "bad.tar.gz"
    for damaged in (
        good[:0],
        good[:5],
        good[: len(good) // 2],
        b"no archive at all",
        good[:40] + b"\xff" * 40,
    ):
        path.write_bytes(damaged)
        with pytest.raises(
            ValueError,
            match=r"bad.tar.gz: it cannot be unpacked \(.+\): it is truncated or damaged",
        ):
            names(path, largest=10**6)
    packed = quiet_folder / "bad.gz"
    packed.write_bytes(gzip.compress(b"hello" * 1000)[:-9])
    with pytest.raises(ValueError, match="it cannot be unpacked"):
        list(gzip_chunks(packed))


def make_zip(path, *members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return path


def test_zip_chunks_reads_one_regular_file(quiet_folder):
    path = quiet_folder / "a.zip"
    make_zip(path, ("enwik8", b"text", 0o100644), ("../enwik8", b"evil", 0))
    assert b"".join(zip_chunks(path, "enwik8")) == b"text"
    with pytest.raises(
        ValueError, match="it has 0 files 'other' among 2, but it must have one: download it again"
    ):
        list(zip_chunks(path, "other"))
    make_zip(path, ("enwik8", b"/etc/passwd", 0o120777))
    with pytest.raises(
        ValueError, match="'enwik8' is not a regular file: download the archive again"
    ):
        list(zip_chunks(path, "enwik8"))
    with pytest.warns(UserWarning, match="Duplicate name"):
        make_zip(path, ("enwik8", b"1", 0), ("enwik8", b"2", 0))
    with pytest.raises(ValueError, match="it has 2 files 'enwik8' among 2"):
        list(zip_chunks(path, "enwik8"))
    path.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ValueError, match=r"it cannot be unpacked \(File is not a zip file\)"):
        list(zip_chunks(path, "enwik8"))
