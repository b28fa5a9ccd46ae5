"""Files of a run folder: only regular files, no symlinks followed, no blocking reads."""

import os
import re
import socket
from pathlib import Path

import pytest

from clearformer import safe_files


@pytest.fixture
def victim(tmp_path):
    """A file outside the run folder, which must stay as it is."""
    path = tmp_path / "victim"
    path.write_text("precious")
    yield path
    assert path.read_text() == "precious"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return path


def planted(kind, path, victim):
    match kind:
        case "a symbolic link":
            path.symlink_to(victim)
        case "a named pipe":
            os.mkfifo(path)
        case "a directory":
            path.mkdir()
        case "a socket":
            with socket.socket(socket.AF_UNIX) as own:
                os.chdir(path.parent)  # the name of a socket must be short
                own.bind(path.name)
    return path


KINDS = ["a symbolic link", "a named pipe", "a directory", "a socket"]


@pytest.mark.parametrize("kind", KINDS)
def test_opens_only_regular_files(folder, victim, kind, monkeypatch):
    monkeypatch.chdir(folder)
    path = planted(kind, folder / "file", victim)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT):
        with pytest.raises(ValueError, match=rf"file is {kind}, but a regular file is needed"):
            safe_files.open_file(path, flags)
    with pytest.raises(ValueError, match=kind):
        safe_files.open_in_place(path)
    with pytest.raises(ValueError, match=kind):
        safe_files.read(path, 100, "MOST")
    assert not safe_files.is_file(path)
    assert safe_files.is_folder(path) == (kind == "a directory")


def test_rejects_device_before_opening(monkeypatch):
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
    with pytest.raises(ValueError, match="/dev/null is a device, but a regular file is needed"):
        safe_files.open_file(Path("/dev/null"))


def test_rechecks_file_after_opening(folder, monkeypatch):
    """The descriptor is checked again: the file may have been replaced by a pipe."""
    os.mkfifo(folder / "pipe")
    monkeypatch.setattr(safe_files, "require_file", lambda path: None)
    with pytest.raises(ValueError, match="pipe is a named pipe"):
        safe_files.open_file(folder / "pipe")
    (folder / "link").symlink_to(folder / "pipe")
    with pytest.raises(OSError, match="link"):
        safe_files.open_file(folder / "link")


def test_dangling_symlink_creates_no_file(folder, tmp_path):
    (folder / "file").symlink_to(tmp_path / "nothing")
    sentence = "links inside a run folder are not followed: delete it, or put the real one there"
    with pytest.raises(ValueError, match=sentence):
        safe_files.open_in_place(folder / "file")
    assert not (tmp_path / "nothing").exists()


def test_missing_file_raises_file_not_found(folder):
    with pytest.raises(FileNotFoundError):
        safe_files.open_file(folder / "none")
    assert not safe_files.is_file(folder / "none" / "deeper")
    safe_files.require_folder(folder / "none")


def test_require_folder_rejects_symlink(folder, tmp_path):
    (folder / "checkpoints").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="checkpoints is a symbolic link, but a directory is"):
        safe_files.require_folder(folder / "checkpoints")
    (folder / "named by the user").symlink_to(folder)
    (folder / "file").write_text("here")
    assert safe_files.read(folder / "named by the user" / "file", 9, "MOST") == b"here"


def test_read_rejects_file_over_limit(folder):
    (folder / "file").write_text("12345")
    assert safe_files.read(folder / "file", 5, "MOST") == b"12345"
    with pytest.raises(ValueError, match=re.escape("file has 5 bytes, but 4 are the most (MOST)")):
        safe_files.read(folder / "file", 4, "MOST")


def test_hard_link_is_copied_before_writing(folder, victim):
    """As after `cp -al run backup`: the backup does not grow with the run."""
    path = folder / "metrics.jsonl"
    os.link(victim, path)
    descriptor = safe_files.open_in_place(path)
    os.write(descriptor, b" and more")
    os.close(descriptor)
    assert path.read_text() == "precious and more"
    assert sorted(each.name for each in folder.iterdir()) == ["metrics.jsonl"]


def test_replace_does_not_follow_symlink(folder, victim):
    (folder / "README.md").symlink_to(victim)
    (folder / f".README.md-{os.getpid()}").symlink_to(victim)  # in the place of the temporary file
    safe_files.replace(folder / "README.md", b"new")
    assert not (folder / "README.md").is_symlink()
    assert (folder / "README.md").read_text() == "new"
    assert [each.name for each in folder.iterdir()] == ["README.md"]


def test_failed_replace_keeps_old_file(folder, monkeypatch):
    (folder / "file").write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        safe_files.replace(folder / "file", b"new")
    assert (folder / "file").read_text() == "old"
    assert [each.name for each in folder.iterdir()] == ["file"]


def test_remove_does_not_follow_symlinks(folder, victim, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (folder / "link").symlink_to(outside)
    (folder / "tree").mkdir()
    (folder / "tree" / "inner").symlink_to(outside)
    (folder / "file").symlink_to(victim)
    for name in ("link", "tree", "file", "none"):
        safe_files.remove(folder / name)
    assert list(folder.iterdir()) == []
    assert (outside / "kept").exists()


def test_require_same_detects_removed_file(folder, tmp_path):
    path = folder / "metrics.jsonl"
    descriptor = safe_files.open_in_place(path)
    safe_files.require_same(descriptor, path)
    path.unlink()
    with pytest.raises(ValueError, match=r"metrics.jsonl was removed, moved or replaced while the"):
        safe_files.require_same(descriptor, path)
    path.touch()
    with pytest.raises(ValueError, match=r"metrics.jsonl was removed, moved or replaced while the"):
        safe_files.require_same(descriptor, path)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=f"the run folder {folder} was removed, moved or replaced"):
        safe_files.require_same(descriptor, path)
    os.close(descriptor)


def test_require_same_accepts_symlink_to_moved_folder(folder, tmp_path):
    descriptor = safe_files.open_in_place(folder / "metrics.jsonl")
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    safe_files.require_same(descriptor, folder / "metrics.jsonl")
    os.close(descriptor)
