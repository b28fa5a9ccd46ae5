"""The user's own text files, and every way they can be invalid."""

import gzip
import io
import os
import re
import threading
from pathlib import Path

import pytest

from clearformer.data import files
from clearformer.data.files import open_text
from clearformer.data.texts import UTF8_MARK


def test_reads_file_bytes_unchanged(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("é\r\nzwei\n".encode())
    text = open_text(path)
    assert text.read() == "é\r\nzwei\n".encode()  # line ends are kept
    assert "".join(text.decoded()) == "é\r\nzwei\n"
    assert open_text(str(path)).sha256 == text.sha256


def test_reads_part_of_file(tmp_path, monkeypatch):
    path = tmp_path / "long.txt"
    whole = bytes(range(256)) * 40
    path.write_bytes(UTF8_MARK + whole)
    monkeypatch.setattr(files, "CHUNK_BYTES", 1000)
    text = open_text(path)
    packed = tmp_path / "long.txt.gz"
    packed.write_bytes(gzip.compress(UTF8_MARK + whole))
    for start, stop in [(0, None), (7, 9), (999, 3001), (5000, None), (0, 10**6), (20_000, None)]:
        for each in (text, open_text(packed)):
            part = each.part(start, stop)
            assert part.read() == whole[start:stop]
            assert part.size == len(whole[start:stop])
    assert sum(map(len, text.part(5000, 5010).chunks())) == 10


def test_skips_utf8_bom(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfhi\xff")
    assert open_text(path).read() == b"hi\xff"
    with pytest.raises(ValueError, match="line 1: byte 5 is 0xFF"):  # as an editor counts
        list(open_text(path).decoded())
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbfhi"))
    assert open_text(packed).read() == b"hi"


def test_folder_is_its_text_files_sorted(tmp_path):
    for name, content in {
        "b.txt": "b", "a/z.md": "z\n", "a/a.TXT": "a", "c.py": "no", ".hidden/x.txt": "no",
        "empty.txt": "", "d.txt.gz": None, "ab.txt": "ab",
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(b"d") if content is None else content.encode())
    assert open_text(tmp_path).read() == b"a\nz\nab\nb\nd"


def test_glob_is_its_files_sorted(tmp_path, monkeypatch):
    for name in ("b.log", "a.log", "c.txt", "in/d.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert open_text(f"{tmp_path}/*.log").read() == b"a.log\nb.log"
    assert open_text(f"{tmp_path}/**/*.log").read() == b"a.log\nb.log\nin/d.log"
    (tmp_path / "[x].txt").write_text("a name with brackets")
    assert open_text(tmp_path / "[x].txt").read() == b"a name with brackets"


def test_reads_standard_input():
    text = open_text("-", io.BytesIO(b"\xef\xbb\xbfpiped"))
    assert text.read() == text.read() == b"piped"
    assert text.fingerprint.size == 5
    with pytest.raises(
        ValueError, match="standard input is empty, but a text is needed: give one, or pipe one in"
    ):
        open_text("-", io.BytesIO(b""))


def test_reads_standard_input_of_process(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"from the shell")))
    assert open_text("-").read() == b"from the shell"


def test_reads_pipe_once(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(b"through a pipe"))
    writer.start()
    text = open_text(path)
    writer.join()
    assert text.read() == text.read() == b"through a pipe"


def complaint(source):
    with pytest.raises(ValueError, match=re.escape(str(source))) as caught:
        list(open_text(source).decoded())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_rejects_missing_path(tmp_path):
    path = tmp_path / "nothing.txt"
    assert complaint(path) == f"{path}: there is no such file or folder (looked in {Path.cwd()})"
    assert complaint(f"{tmp_path}/*.txt") == f"{tmp_path}/*.txt: there are no non-empty files"
    assert complaint(tmp_path) == f"{tmp_path}: there are no non-empty files that end in .txt, .md"


def test_rejects_empty_file(tmp_path):
    path = tmp_path / "empty.txt"
    for content in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(content)
        assert complaint(path) == f"{path}: it is empty, but a text is needed"
    packed = tmp_path / "empty.gz"
    packed.write_bytes(gzip.compress(b""))
    assert complaint(packed) == f"{packed}: it is empty, but a text is needed"


def test_rejects_unreadable_file(tmp_path, monkeypatch):
    path = tmp_path / "secret.txt"
    path.write_text("x")

    def forbidden(self, *arguments, **more):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", forbidden)  # tests may run as root, who may read anything
    assert complaint(path) == f"{path}: it cannot be read (Permission denied): check it"
    monkeypatch.setattr(Path, "stat", forbidden)
    assert complaint(path) == f"{path}: it cannot be read (Permission denied): check it"


def test_rejects_device():
    assert complaint("/dev/null") == "/dev/null: it is a device, but a file is needed"


def test_rejects_invalid_text(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"fine\ncaf\xe9\n")
    assert complaint(path).startswith(f"{path}, line 2: byte 8 is 0xE9, which is not UTF-8 there: ")
    path.write_bytes("hello".encode("utf-16"))
    assert complaint(path).startswith(
        f"{path}: it is UTF-16 (by its first bytes): save the text as"
    )
    path.write_bytes(b"\x7fELF\x02\x00\x00")
    assert complaint(path).startswith(f"{path}, line 1: byte 5 is NUL, as in a binary file")
    packed = tmp_path / "bad.txt.gz"
    packed.write_bytes(b"not packed")
    assert complaint(packed).startswith(f"{packed}: it cannot be unpacked (Not a gzipped file")


def test_rejects_very_long_name(tmp_path):
    assert "it cannot be read (File name too long)" in complaint("x" * 5000)
