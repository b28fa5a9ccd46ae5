"""Token files: written once, atomically, and validated when read."""

import gzip
import json
import os
import re

import numpy as np
import pytest

from clearformer.data import tokens
from clearformer.data.cache_files import temporary_name
from clearformer.data.files import open_text
from clearformer.data.texts import TextSource, in_memory
from clearformer.data.tokens import TokenArray, open_tokens, prepare
from clearformer.text import Bytes, Words, train


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.txt"
    path.write_text("the cat and the dog\n" * 500, encoding="utf-8")
    return path


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "tokens"


def files(cache):
    return sorted(path.name for path in cache.iterdir())


def test_ids_match_tokenizer(source, cache):
    text = open_text(source)
    for tokenizer, dtype in (
        (Bytes(), "uint8"),
        (train("characters", text.decoded()), "uint8"),
        (train("bpe", text.decoded(), 300), "uint16"),
        (Words(["the", "cat", *(f"w{i}" for i in range(70_000))]), "uint32"),
    ):
        prepared = prepare(text, tokenizer, cache)
        whole = tokenizer.encode(source.read_text(encoding="utf-8"))
        assert prepared.read(0, len(prepared)).tolist() == whole.tolist()
        assert prepared.read(3, 7).dtype == np.int64
        assert prepared.description.dtype == dtype
        assert prepared.text_bytes == 10_000
        assert prepared.path.stat().st_size == len(whole) * np.dtype(dtype).itemsize


def test_token_file_is_created_once(source, cache, monkeypatch):
    said = []
    first = prepare(
        open_text(source), Bytes(), cache, lambda done, total: said.append((done, total))
    )
    assert said == [(10_000, None)]
    assert len(files(cache)) == 2
    monkeypatch.setattr(tokens, "_write", None)  # calling it would fail
    assert prepare(open_text(source), Bytes(), cache).sha256 == first.sha256


def test_the_same_content_has_the_same_token_file(source, cache, tmp_path, monkeypatch):
    """Touched, renamed, with other permissions, copied or compressed: it is the same text."""
    first = prepare(open_text(source), Bytes(), cache)
    os.utime(source, (1, 1))
    source.chmod(0o600)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    copy = folder / "source.txt"
    copy.write_bytes(source.read_bytes())
    monkeypatch.setattr(tokens, "_write", None)
    for path in (source, copy, folder):
        again = prepare(TextSource(source.name, open_text(path).pieces), Bytes(), cache)
        assert again.path == first.path
    packed = folder / "source.txt.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    again = prepare(TextSource(source.name, open_text(packed).pieces), Bytes(), cache)
    assert again.path == first.path


def keep_status(path, act):
    """Change a file and put its size and its date back, as `cp -p` and `touch -r` do."""
    before = path.stat()
    act()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def rewrite(path, data):
    path.write_bytes(data)


def replace(path, data):
    other = path.with_name("other")
    other.write_bytes(data)
    os.replace(other, path)


@pytest.mark.parametrize("change", [rewrite, replace])
@pytest.mark.parametrize("kind", ["file", "folder", "glob", "gzip"])
def test_changed_content_with_same_size_and_date_is_detected(source, cache, change, kind):
    def packed(data):
        return gzip.compress(data, compresslevel=0, mtime=0) if kind == "gzip" else data

    path = source.with_suffix(".txt.gz") if kind == "gzip" else source
    path.write_bytes(packed(source.read_bytes()))
    name = {"folder": path.parent, "glob": f"{path.parent}/*.txt"}.get(kind, path)
    before = prepare(open_text(name), Bytes(), cache)
    other = source.read_bytes().replace(b"cat", b"dog")
    keep_status(path, lambda: change(path, packed(other)))
    after = prepare(open_text(name), Bytes(), cache)
    assert after.read(0, 7).astype(np.uint8).tobytes() == b"the dog"
    assert before.read(0, 7).astype(np.uint8).tobytes() == b"the cat"


def test_rejects_text_changed_while_encoding(source, cache):
    text = open_text(source)
    assert text.fingerprint
    keep_status(source, lambda: rewrite(source, source.read_bytes()[::-1]))
    sentence = (
        f"{source}: it was changed while it was being read: start again when no program writes"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        prepare(text, Bytes(), cache)
    assert files(cache) == []


def test_token_file_depends_on_text_tokenizer_and_part(source, cache):
    text = open_text(source)
    first = prepare(text, Bytes(), cache)
    assert prepare(text.part(0, 100), Bytes(), cache).path != first.path
    assert prepare(text, train("words", text.decoded()), cache).path != first.path
    source.write_text("changed", encoding="utf-8")
    second = prepare(open_text(source), Bytes(), cache)
    assert len(second) == 7
    assert first.read(0, 3).tolist() == [*b"the"]  # who uses the old one keeps it
    first.verify()


def test_in_memory_text_is_cached_by_content(cache, monkeypatch):
    prepare(TextSource("m", (in_memory("m", b"abc"),)), Bytes(), cache)
    assert len(prepare(TextSource("m", (in_memory("m", b"abcd"),)), Bytes(), cache)) == 4
    monkeypatch.setattr(tokens, "_write", None)
    assert len(prepare(TextSource("m", (in_memory("m", b"abcd"),)), Bytes(), cache)) == 4


def damage_cut(path):
    os.truncate(path, 4096)


def damage_flip(path):
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)


def damage_empty(path):
    path.write_bytes(b"")


def damage_description(path):
    path.with_suffix(".json").write_text("{}")


def damage_missing(path):
    path.unlink()


def damage_deep(path):
    path.with_suffix(".json").write_text("[" * 100_000 + "]" * 100_000)


def damage_list(path):
    path.with_suffix(".json").write_text("[1, 2]")


def damage_link(path):
    path.rename(path.with_suffix(".old"))
    path.symlink_to(path.with_suffix(".old"))


def damage_description_link(path):
    source = path.with_suffix(".json")
    source.rename(path.with_suffix(".old"))
    source.symlink_to(path.with_suffix(".old"))


def damage_pipe(path):
    path.unlink()
    os.mkfifo(path)


def damage_description_pipe(path):
    path.with_suffix(".json").unlink()
    os.mkfifo(path.with_suffix(".json"))


DAMAGE = [each for name, each in list(globals().items()) if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_file_is_detected_and_recreated(source, cache, damage):
    first = prepare(open_text(source), Bytes(), cache)
    damage(first.path)
    with pytest.raises(ValueError, match="delete it, and it will be made again"):
        open_tokens(first.path)
    second = prepare(open_text(source), Bytes(), cache)
    assert second.sha256 == first.sha256
    second.verify()
    for path in (second.path, second.path.with_suffix(".json")):
        assert path.is_file()
        assert not path.is_symlink()


LIES = [
    ("text_bytes", 1_000_000),
    ("text_bytes", "10000"),
    ("text_bytes", -1),
    ("text_sha256", "0" * 64),
    ("tokenizer", "0" * 64),
    ("vocabulary", 257),
    ("vocabulary", 2**70),
    ("vocabulary", 100),  # fewer than the ids that are there
    ("dtype", "uint16"),
    ("dtype", ["uint8"]),
    ("count", 9_999),
    ("sha256", None),
    ("more", 1),
]


@pytest.mark.parametrize(("field", "value"), LIES)
def test_forged_description_is_detected(source, cache, field, value):
    """With 100 times the bytes of the text, bits per byte would be a hundredth."""
    first = prepare(open_text(source), Bytes(), cache)
    about = first.path.with_suffix(".json")
    good = about.read_text()
    about.write_text(json.dumps({**json.loads(good), field: value}))
    second = prepare(open_text(source), Bytes(), cache)
    assert second.description == first.description
    assert about.read_text() == good


def test_rejects_invalid_descriptions(source, cache):
    path = prepare(open_text(source), Bytes(), cache).path
    about = path.with_suffix(".json")
    good = json.loads(about.read_text())
    for field, value in [
        ("format", 1),
        ("dtype", "object"),
        ("count", -1),
        ("count", 2.0),
        ("count", 10**15),
    ]:
        about.write_text(json.dumps({**good, field: value}))
        with pytest.raises(
            ValueError,
            match=r"it does not describe a token file|but 1,000,000,000,000,000 were written",
        ):
            open_tokens(path)


def test_truncated_mapped_file_raises_instead_of_crashing(source, cache):
    """Reading past the end of a mapped file raises SIGBUS, which would end the process."""
    prepared = prepare(open_text(source), Bytes(), cache)
    os.truncate(prepared.path, 4096)
    sentence = (
        f"{prepared.path}: the token file has 4,096 bytes, but 10,000 were written: "
        f"delete it, and it will be made again"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        prepared.read(9000, 9001)


def test_verify_rejects_grown_file_and_allows_replaced_path(source, cache):
    prepared = prepare(open_text(source), Bytes(), cache)
    prepared.path.rename(prepared.path.with_suffix(".old"))
    prepared.path.write_bytes(b"another process made it again")
    prepared.verify()
    prepared.path.unlink()
    prepared.verify()
    with prepared.path.with_suffix(".old").open("ab") as file:
        file.write(b"x")
    with pytest.raises(
        ValueError, match="the token file has 10,001 bytes, but 10,000 were written"
    ):
        prepared.check()


def test_invalid_text_leaves_no_files(tmp_path, cache):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"ok\nbad \xff\n")
    with pytest.raises(
        ValueError, match=r"bad.txt, line 2: byte 7 is 0xFF, which is not UTF-8 there"
    ):
        prepare(open_text(path), train("characters", ["abc"]), cache)
    assert files(cache) == []
    assert len(prepare(open_text(path), Bytes(), cache)) == 9
    path.write_bytes(b"  \n")
    with pytest.raises(ValueError, match=r"bad.txt: it has no tokens, but a text is needed"):
        prepare(open_text(path), train("words", ["abc"]), cache)


def test_reports_full_disk(source, cache, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    sentence = (
        f"{cache}: the token file of {source} cannot be written there "
        f"(No space left on device): free some space, or choose another folder"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        prepare(open_text(source), Bytes(), cache)
    assert files(cache) == []


def test_rejects_text_larger_than_free_space(tmp_path, cache):
    huge = tmp_path / "huge.txt"
    huge.write_bytes(b"a")
    os.truncate(huge, 2**43)  # takes no space
    held_back = open_text(huge).part(2**42)
    assert held_back.size == 2**42
    with pytest.raises(ValueError, match=r"^.*huge.txt is too large: its token file needs 4,096.0"):
        prepare(held_back, Bytes(), cache)


def test_rejects_cache_folder_that_is_a_file(source, tmp_path):
    with pytest.raises(ValueError, match="cannot be written there"):
        prepare(open_text(source), Bytes(), source)


def test_removes_leftover_of_killed_process(source, cache):
    path = prepare(open_text(source), Bytes(), cache).path
    prefix = temporary_name(path).name.removesuffix(str(os.getpid()))
    dead = cache / f"{prefix}{2**22 + 1}"  # above the largest process id of Linux
    alive = cache / f"{prefix}{os.getppid()}"
    for left in (dead, alive):
        left.write_bytes(b"half")
    path.unlink()
    prepare(open_text(source), Bytes(), cache)
    assert not dead.exists()
    assert alive.exists()


def test_sanitizes_file_names(cache):
    prepared = prepare(TextSource("../../é / x", (in_memory("m", b"abc"),)), Bytes(), cache)
    assert prepared.path.parent == cache
    assert prepared.path.name.startswith("x-")


def test_token_array():
    array = TokenArray(np.arange(5, dtype=np.uint8))
    assert len(array) == 5
    assert array.read(1, 3).tolist() == [1, 2]
    assert array.read(1, 3).dtype == np.int64
