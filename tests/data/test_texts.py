"""TextSource: one byte stream from any number of files."""

import hashlib
import os
import re
from functools import cached_property

import pytest

from clearformer.data.files import open_text
from clearformer.data.texts import (
    Fingerprint,
    SourceFile,
    TextSource,
    fingerprint_together,
    in_memory,
)


def text_of(*contents):
    pieces = tuple(in_memory(f"file{i}", each) for i, each in enumerate(contents))
    return TextSource("several", pieces)


def test_files_are_joined_with_line_breaks():
    assert text_of(b"a\nb", b"", b"c\n", b"d").read() == b"a\nb\nc\nd"
    assert text_of(b"a").read() == b"a"


def test_can_be_read_repeatedly():
    text = text_of(b"one", b"two")
    assert text.read() == text.read() == b"one\ntwo"
    assert text.size == 7
    assert text.sha256 == hashlib.sha256(b"one\ntwo").hexdigest()


def test_files_yields_one_file_at_a_time():
    text = text_of(b"a\nb", b"", b"c\n", b"de")
    assert list(text.files()) == [b"a\nb\n", b"c\n", b"de"]
    assert list(text.part(1, 7).files()) == [b"\nb\n", b"c\n", b"d"]


def test_nested_parts_match_slices():
    text = text_of(b"0123", b"5678")
    whole = text.read()
    for start in range(10):
        for stop in [*range(start, 12), None]:
            part = text.part(start, stop)
            assert part.read() == whole[start:stop]
            assert part.part(1, 3).read() == whole[start:stop][1:3]
            assert part.part(2).read() == whole[start:stop][2:]
            assert part.size == len(whole[start:stop])


def test_large_files_are_read_in_chunks():
    data = bytes(range(256)) * 10_000
    text = text_of(data)
    chunks = list(text.chunks())
    assert len(chunks) == 3
    assert b"".join(chunks) == data
    assert text.part(1_000_000, 2_000_000).read() == data[1_000_000:2_000_000]


def test_size_of_every_part_needs_one_read():
    reads = []

    def counted(name, data):
        def read():
            reads.append(name)
            return iter([data[:1], b"", data[1:]])

        return SourceFile(name, read)

    text = TextSource("t", (counted("a", b"one"), counted("b", b""), counted("c", b"two\n")))
    assert [text.part(i).size for i in range(10)] == [8, 7, 6, 5, 4, 3, 2, 1, 0, 0]
    assert reads == ["a", "b", "c"]
    assert text.read() == b"one\ntwo\n"


def test_fingerprint_depends_on_content():
    text = text_of(b"one", b"two")
    measure = text.part(2, 5).fingerprint
    assert measure == Fingerprint(3, hashlib.sha256(b"e\nt").hexdigest())
    assert measure == text_of(b"e\nt").fingerprint


def rewrite_between(monkeypatch, path, content):
    """Rewrite a file before the second fingerprint is taken."""
    fingerprint = TextSource.fingerprint.func
    seen = []

    def watched(text):
        seen.append(text)
        if len(seen) == 2:
            status = path.stat()
            path.write_bytes(content)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return fingerprint(text)

    patched = cached_property(watched)
    patched.__set_name__(TextSource, "fingerprint")
    monkeypatch.setattr(TextSource, "fingerprint", patched)


def test_rejects_file_changed_between_parts(tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_bytes(b"one text\n")
    text = open_text(path)
    rewrite_between(monkeypatch, path, b"two text\n")
    sentence = (
        f"{path}: it was changed while it was being read: start again when no program writes to"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        fingerprint_together(text.part(0, 4), text.part(4))


def test_appended_file_keeps_fingerprint_of_parts(tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_bytes(b"one text\n")
    text = open_text(path)
    rewrite_between(monkeypatch, path, b"one text\nand more")
    parts = text.part(0, 4), text.part(4)
    fingerprint_together(*parts)
    assert [part.fingerprint.size for part in parts] == [4, 5]


ADVICE = "save the text as UTF-8 (a generator with the bytes tokenizer accepts any file)"
WRONG = [
    ((b"ok\nfine\n", b"one\ntw\xe9\n"), "file1, line 2: byte 6 is 0xE9, which is not UTF-8 there"),
    ((b"a\0b",), "file0, line 1: byte 1 is NUL, as in a binary file or in UTF-16"),
    ((b"a", "añ".encode()[:-1]), "file1, line 1: byte 1 is 0xC3, which is not UTF-8 there"),
    (("é".encode("utf-16"),), "file0: it is UTF-16 (by its first bytes)"),
    (("é".encode("utf-32"),), "file0: it is UTF-16 (by its first bytes)"),
]


@pytest.mark.parametrize(("contents", "sentence"), WRONG)
def test_invalid_text_error_names_position(contents, sentence):
    with pytest.raises(ValueError, match="^" + re.escape(f"{sentence}: {ADVICE}") + "$"):
        list(text_of(*contents).decoded())


def test_error_position_counts_from_start_of_file():
    text = text_of(b"line\n" * 10 + b"\xff").part(20)
    with pytest.raises(ValueError, match=r"file0, line 11: byte 50 is 0xFF"):
        list(text.decoded())
    marked = TextSource("m", (SourceFile("marked", lambda: iter([b"ab\xff"]), lead=3),))
    with pytest.raises(ValueError, match=r"marked, line 1: byte 5 is 0xFF"):
        list(marked.decoded())


def test_error_line_number_counts_across_chunks():
    piece = SourceFile("p", lambda: iter([b"a\n", b"b\nc", b"\nd", b"\xff"]))
    with pytest.raises(ValueError, match=r"p, line 4: byte 7 is 0xFF"):
        list(TextSource("t", (piece,)).decoded())
