"""Corpora stored as files: search order, checksums, and messages for missing files."""

import gzip
import hashlib
import io
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from clearformer.data import DataFolders, corpus, corpus_files
from clearformer.data.download import Pinned


def pin(name, data):
    return Pinned(
        name,
        f"https://nowhere.invalid/{name}",
        len(data),
        (("sha256", hashlib.sha256(data).hexdigest()),),
    )


@pytest.fixture
def offline(monkeypatch):
    """Nothing is downloaded in these tests."""

    def refuse(request, timeout):
        raise OSError(f"no network for {request.full_url}")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


def test_downloads_have_pinned_hashes():
    for each in (corpus_files.SHAKESPEARE, corpus_files.ENWIK8, corpus_files.IMDB):
        assert each.url.startswith("https://")
        assert each.size > 1_000_000
        digests = dict(each.hashes)
        assert len(digests["sha256"]) == 64
    assert dict(corpus_files.IMDB.hashes)["md5"] == "7c2ac02c03563afcf9b574c7e56c153a"


def test_data_folder_precedes_cache_and_network(tmp_path, monkeypatch, offline):
    folder, cache = tmp_path / "folder", tmp_path / "cache"
    folder.mkdir()
    cache.mkdir()
    monkeypatch.setattr(corpus_files, "SHAKESPEARE", pin("tinyshakespeare.txt", b"to be"))
    (cache / "tinyshakespeare.txt").write_bytes(b"to be")
    text = corpus("shakespeare").read("train", DataFolders(folder, cache))
    assert text.read() == b"to be"
    assert text.pieces[0].name == str(cache / "tinyshakespeare.txt")
    (folder / "tinyshakespeare.txt").write_bytes(b"to be")
    text = corpus("shakespeare").read("train", DataFolders(folder, cache))
    assert text.pieces[0].name == str(folder / "tinyshakespeare.txt")
    (folder / "tinyshakespeare.txt").write_bytes(b"to bE")
    with pytest.raises(ValueError, match=r"tinyshakespeare.txt: it is damaged or another file"):
        corpus("shakespeare").read("train", DataFolders(folder, cache))


def test_downloads_go_to_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_files, "SHAKESPEARE", pin("tinyshakespeare.txt", b"to be"))

    class Answer(io.BytesIO):
        status, headers, url = 200, {}, "https://nowhere.invalid/"

    monkeypatch.setattr("urllib.request.urlopen", lambda request, timeout: Answer(b"to be"))
    seen = []
    places = DataFolders(None, tmp_path / "new", lambda done, total: seen.append((done, total)))
    assert corpus("shakespeare").read("train", places).read() == b"to be"
    assert seen == [(5, 5)]
    assert (tmp_path / "new" / "tinyshakespeare.txt").exists()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("shakespeare", "tinyshakespeare.txt"),
        ("enwik8", "enwik8.zip"),
        ("imdb", "aclImdb_v1.tar.gz"),
    ],
)
def test_offline_error_names_file_and_folder(tmp_path, offline, name, file):
    with pytest.raises(
        ValueError, match=re.escape(f"or get it elsewhere and put it into {tmp_path} as {file}")
    ) as caught:
        corpus(name).read("train", DataFolders(cache=tmp_path))
    assert "could not be downloaded (no network for https://" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(
        ValueError, match=re.escape(f"{file} is missing: download it from https://")
    ):
        corpus(name).read("train", DataFolders(folder=tmp_path))
    with pytest.raises(ValueError, match="put it into a folder and set --data-dir to that folder"):
        corpus(name).read("train", DataFolders())


def test_rejects_missing_data_folder(tmp_path):
    with pytest.raises(ValueError, match="nothing: the data folder does not exist"):
        corpus("imdb").read("train", DataFolders(folder=tmp_path / "nothing"))


def test_rejects_unusable_cache(tmp_path, offline):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=r"enwik8.zip cannot be stored there \(File exists\)"):
        corpus("enwik8").read("train", DataFolders(cache=tmp_path / "file"))


@pytest.fixture
def small_enwik8(monkeypatch):
    data = b"".join(b"<page>%d</page>\n" % i for i in range(10_000))
    monkeypatch.setattr(
        corpus_files, "ENWIK8_CONTENT", (len(data), hashlib.sha256(data).hexdigest())
    )
    monkeypatch.setattr(
        corpus_files,
        "ENWIK8_PARTS",
        {"train": (0, 1000), "validation": (1000, 2000), "test": (2000, len(data))},
    )
    return data


def pack(path, data):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("enwik8", data)
    else:
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.mark.parametrize("name", ["enwik8", "enwik8.zip", "enwik8.gz"])
def test_enwik8_reads_every_container_format(tmp_path, small_enwik8, name):
    pack(tmp_path / name, small_enwik8)
    places = DataFolders(folder=tmp_path)
    parts = [corpus("enwik8").read(part, places).read() for part in ("train", "validation", "test")]
    assert b"".join(parts) == small_enwik8
    assert len(parts[0]) == 1000
    pack(tmp_path / name, small_enwik8[:-1] + b"x")
    for part in ("train", "test"):  # a part is read to the end of the file, where it is checked
        with pytest.raises(ValueError, match=r"bytes are not the 100,000,000 of enwik8: delete it"):
            corpus("enwik8").read(part, places).read()


def make_imdb(path, prefix="aclImdb"):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in [
            ("train/pos/10_9.txt", "great"), ("train/neg/2_1.txt", "bad é"),
            ("train/pos/9_7.txt", "good"), ("test/pos/0_10.txt", "fine"),
            ("test/neg/0_2.txt", "poor"), ("train/unsup/5_0.txt", "who knows"),
            ("train/pos/x.txt", "no"), ("README", "no"), ("train/urls_pos.txt", "no"),
        ]:  # fmt: skip
            info = tarfile.TarInfo(f"{prefix}/{name}")
            info.size = len(content.encode())
            archive.addfile(info, io.BytesIO(content.encode()))


@pytest.mark.parametrize("prefix", ["aclImdb", "./aclImdb"])
def test_imdb_reads_official_layout(tmp_path, prefix):
    make_imdb(tmp_path / "aclImdb.tar.gz", prefix)
    places = DataFolders(folder=tmp_path)
    train = corpus("imdb").read("train", places)
    assert train.labels == ("neg", "pos", "pos")
    assert train.texts == ("bad é", "good", "great")  # by label and number
    assert corpus("imdb").read("test", places).texts == ("poor", "fine")
    unlabelled = corpus("imdb").read("unlabelled", places)
    assert (unlabelled.texts, unlabelled.labels) == (("who knows",), None)


def test_imdb_rejects_other_archives(tmp_path):
    make_imdb(tmp_path / "aclImdb.tar.gz", "other")
    with pytest.raises(
        ValueError,
        match=re.escape("it has no reviews in train/(pos|neg): take it from https://ai."),
    ):
        corpus("imdb").read("train", DataFolders(folder=tmp_path))
    make_imdb(tmp_path / "aclImdb_v1.tar.gz")
    with pytest.raises(ValueError, match=r"aclImdb_v1.tar.gz: it is damaged or another file"):
        corpus("imdb").read("train", DataFolders(folder=tmp_path))
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("aclImdb/train/pos/1_1.txt")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"a\xff"))
    (tmp_path / "aclImdb_v1.tar.gz").unlink()
    shutil.move(tmp_path / "bad.tar.gz", tmp_path / "aclImdb.tar.gz")
    with pytest.raises(
        ValueError, match=r"byte 1 of aclImdb/train/pos/1_1.txt is not UTF-8: download it again"
    ):
        corpus("imdb").read("train", DataFolders(folder=tmp_path))


def test_multi30k_missing_and_present(tmp_path):
    places = DataFolders(folder=tmp_path)
    sentence = (
        f"multi30k: val.en.gz is missing, and without a published hash it is not downloaded: "
        f"download it from https://github.com/multi30k/dataset (data/task1/raw) "
        f"and put it into {tmp_path / 'multi30k'}"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        corpus("multi30k").read("validation", places)
    (tmp_path / "multi30k").mkdir()
    english, german = tmp_path / "multi30k/val.en.gz", tmp_path / "multi30k/val.de.gz"
    english.write_bytes(gzip.compress(b"A dog.\nTwo men.\n"))
    german.write_bytes(gzip.compress("Ein Hund.\nZwei Männer.\n".encode()))
    pairs = corpus("multi30k").read("validation", places)
    assert pairs.sources == ("A dog.", "Two men.")
    assert pairs.targets == ("Ein Hund.", "Zwei Männer.")
    assert len(pairs) == 2
    german.write_bytes(gzip.compress(b"Ein Hund.\n"))
    with pytest.raises(
        ValueError,
        match="multi30k: val has 2 lines in English and 1 in German, but they must match",
    ):
        corpus("multi30k").read("validation", places)


def test_wikitext2_missing_and_present(tmp_path):
    sentence = "wikitext2: wikitext-2-raw-v1.zip is missing, and without a published hash it is"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        corpus("wikitext2").read("train", DataFolders(cache=tmp_path))
    with pytest.raises(ValueError, match="put it into a folder for --data-dir"):
        corpus("wikitext2").read("train", DataFolders())
    with zipfile.ZipFile(tmp_path / "wikitext-2-raw-v1.zip", "w") as archive:
        archive.writestr("wikitext-2-raw/wiki.valid.raw", "= Robert Boulter =\n")
    assert (
        corpus("wikitext2").read("validation", DataFolders(cache=tmp_path)).read()
        == b"= Robert Boulter =\n"
    )
    (tmp_path / "wikitext-2-raw").mkdir()
    (tmp_path / "wikitext-2-raw/wiki.valid.raw").write_bytes(b"unpacked")
    assert corpus("wikitext2").read("validation", DataFolders(cache=tmp_path)).read() == b"unpacked"


def require(shared, *names):
    for name in names:
        if not (Path(shared.folder) / name).exists():
            pytest.skip(f"{Path(shared.folder) / name} is not there")


def test_real_shakespeare(shared):
    require(shared, "tinyshakespeare.txt")
    text = corpus("shakespeare").read("train", shared)
    assert text.read().startswith(b"First Citizen:\n")
    assert text.size == 1_115_394


def test_real_enwik8(shared):
    require(shared, "enwik8.gz")
    text = corpus("enwik8").read("validation", shared)
    assert text.size == 5_000_000
    assert text.part(0, 23).read() == b"ern highlands and does "


def test_real_imdb(shared):
    require(shared, "aclImdb.tar.gz")
    table = corpus("imdb").read("test", shared)
    assert [table.labels.count(label) for label in ("neg", "pos")] == [6250, 6250]


def test_real_multi30k(shared):
    require(shared, "multi30k")
    assert len(corpus("multi30k").read("train", shared)) == 29_000
