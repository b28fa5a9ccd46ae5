"""Untrusted JSON: read, or rejected immediately in one sentence."""

import os
import re
from pathlib import Path

import pytest

from clearformer import limits
from clearformer.safe_json import read_json, read_run_json


def test_reads_json(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": [1, "ö"]}', encoding="utf-8")
    assert read_json(path) == {"a": [1, "ö"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[" * 100_000, "a.json is not valid JSON: maximum recursion depth exceeded"),
        (b"{", "a.json is not valid JSON: Expecting property name"),
        (b"9" * 5000, "a.json has a number of thousands of digits, but no id or setting is that"),
        (b"\xff\xfe\xfd", "a.json is not valid JSON: 'utf-16-le' codec can't decode"),
        (b'"\xff"', "a.json is not valid JSON: 'utf-8' codec can't decode"),
    ],
)
def test_rejects_invalid_json(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=re.escape(message)) as problem:
        read_json(path)
    assert "\n" not in str(problem.value)


def test_rejects_special_and_oversized_files(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match=r" is not a regular file, but one is needed$"):
            read_json(path)
    with pytest.raises(ValueError, match="none cannot be read: No such file"):
        read_json(tmp_path / "none")
    (tmp_path / "a").write_text("[1]")
    monkeypatch.setattr(limits, "MAX_JSON_BYTES", 2)
    with pytest.raises(ValueError, match=r"a has 3 bytes, but 2 are the most \(MAX_JSON_BYTES\)"):
        read_json(tmp_path / "a")


def test_run_json_does_not_follow_symlinks(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("[1]")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert read_json(tmp_path / "link") == read_run_json(tmp_path / "a") == [1]
    with pytest.raises(ValueError, match="link is a symbolic link, but a regular file is needed"):
        read_run_json(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is a named pipe"):
        read_run_json(tmp_path / "pipe")
    with pytest.raises(ValueError, match="none cannot be read: No such file"):
        read_run_json(tmp_path / "none")
    (tmp_path / "deep").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="deep is not valid JSON: maximum recursion depth"):
        read_run_json(tmp_path / "deep")
    monkeypatch.setattr(limits, "MAX_JSON_BYTES", 2)
    with pytest.raises(ValueError, match=r"a has 3 bytes, but 2 are the most \(MAX_JSON_BYTES\)"):
        read_run_json(tmp_path / "a")
