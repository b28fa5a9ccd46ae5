"""Cache files: only the user's own regular files are read, and writes are atomic."""

import os
import re

import pytest

from clearformer.data.cache_files import open_owned, read_owned_json, replacing, temporary_name


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.json"
    path.write_text('{"a": 1}')
    return path


READ = [lambda path: open_owned(path).close(), read_owned_json]


def test_reads_own_file(path):
    with open_owned(path) as file:
        assert file.read() == b'{"a": 1}'
    assert read_owned_json(path) == {"a": 1}


@pytest.mark.parametrize("read", READ)
def test_rejects_symlink_pipe_and_folder(path, read, tmp_path):
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(path)
    os.mkfifo(pipe)
    for other in (link, pipe, tmp_path, tmp_path / "none"):
        with pytest.raises(OSError, match=r"regular file|symbolic links|No such file"):
            read(other)


@pytest.mark.parametrize("read", READ)
def test_rejects_file_of_other_user_except_root(path, read, monkeypatch):
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        read(path)
        os.chown(path, 7, -1)
        owner = 7
    with pytest.raises(OSError, match=f"it belongs to another user, uid {owner}"):
        read(path)


def test_replacing_is_atomic(path):
    def fail(file):
        file.write(b"half")
        raise KeyError

    with pytest.raises(KeyError), replacing(path) as file:
        fail(file)
    assert path.read_text() == '{"a": 1}'
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == '{"a": 1}'
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_does_not_write_through_symlink_at_temporary_name(path, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    temporary_name(path).symlink_to(precious)
    with replacing(path) as file:
        file.write(b"new")
    assert precious.read_text() == "kept"
    assert path.read_text() == "new"
    assert not path.is_symlink()


def test_replaces_symlink_instead_of_following(path, tmp_path):
    precious = tmp_path / "precious"
    path.rename(precious)
    path.symlink_to(precious)
    with replacing(path) as file:
        file.write(b"new")
    assert re.fullmatch(r'{"a": 1}', precious.read_text())
    assert not path.is_symlink()


@pytest.mark.parametrize("owner", ["9" * 30, "9999999999", "٣", "-1", "1\n", "0x1"], ids=ascii)
def test_removes_leftover_of_dead_process(path, owner):
    prefix = temporary_name(path).name.removesuffix(str(os.getpid()))
    left = path.with_name(f"{prefix}{owner}")
    left.touch()
    temporary_name(path)
    assert left.exists() != owner.startswith("9")  # a suffix that is not a process id is not ours
