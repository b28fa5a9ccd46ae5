"""The lock of a run folder."""

import fcntl
import os

import pytest

from clearformer.runs.lock import Lock, held, require_writable, writable


def test_rejects_second_owner_and_names_first(tmp_path):
    lock = Lock(tmp_path)
    with pytest.raises(ValueError, match=rf"another process \(process {os.getpid()} on "):
        Lock(tmp_path)
    lock.release()
    again = Lock(tmp_path)
    del again  # thrown away without a word
    Lock(tmp_path)


def test_rejects_unwritable_folder(tmp_path):
    require_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot be written to: Not a directory; choose another"):
        require_writable(tmp_path / "file" / "run")


def test_discard_removes_empty_run_folder(tmp_path):
    Lock(folder := tmp_path / "run").discard()
    assert not folder.exists()
    lock = Lock(folder)
    (folder / "config.json").touch()
    lock.discard()
    assert sorted(each.name for each in folder.iterdir()) == ["config.json", "lock"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    Lock(tmp_path / "link").discard()  # no error about the link, which would hide the real one
    assert (tmp_path / "link").is_symlink()


def test_writable_removes_unused_folders(tmp_path):
    (tmp_path / "runs").mkdir()
    folder = tmp_path / "runs" / "many" / "one"

    def refused():
        with writable(folder):
            assert folder.is_dir()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        refused()
    assert list((tmp_path / "runs").iterdir()) == []  # which was there before
    with writable(folder):
        (folder.parent / "other").mkdir()
    assert [each.name for each in folder.parent.iterdir()] == ["other"]
    with writable(folder):
        (folder / "config.json").touch()
    assert (folder / "config.json").exists()
    with writable(folder):
        (folder / "config.json").unlink()
    assert folder.exists()
    too_long = tmp_path / "new" / ("x" * 300)
    with pytest.raises(ValueError, match="cannot be written to"), writable(too_long):
        pass
    assert not (tmp_path / "new").exists()


def test_retries_if_lock_file_was_removed(tmp_path, monkeypatch):
    """Between opening the file and locking it, or two would hold a lock of the same name."""
    flock, opened = fcntl.flock, []

    def too_late(descriptor, how):
        if not opened:
            (tmp_path / "lock").unlink()
        opened.append(descriptor)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", too_late)
    lock = Lock(tmp_path)
    assert len(opened) == 2
    monkeypatch.undo()
    with pytest.raises(ValueError, match="another process"):
        Lock(tmp_path)
    lock.release()


def test_lock_does_not_follow_links(tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_text("precious")
    folder.mkdir()
    (folder / "lock").symlink_to(victim)
    with pytest.raises(ValueError, match="lock is a symbolic link, but a regular file is needed"):
        Lock(folder)
    (folder / "lock").unlink()
    os.link(victim, folder / "lock")  # no link to be seen, but the same file
    lock = Lock(folder)
    assert victim.read_text() == "precious"
    assert (folder / "lock").read_text().startswith(f"process {os.getpid()} on ")
    with pytest.raises(ValueError, match="another process"):
        Lock(folder)
    lock.release()


def test_write_probe_does_not_follow_symlinks(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run").mkdir()
    for name in (f".probe-{os.getpid()}", f"..probe-{os.getpid()}-{os.getpid()}"):
        (tmp_path / "run" / name).symlink_to(victim)
    require_writable(tmp_path / "run")
    assert victim.read_text() == "precious"
    assert list((tmp_path / "run").iterdir()) == []


def test_owner_name_is_escaped(tmp_path):
    with (tmp_path / "lock").open("w") as file:
        file.write("you\n\x1b[31mand I")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match=r"another process \(you\?\?\[31mand I\)"):
            Lock(tmp_path)


def test_require_held_detects_moved_folder(tmp_path):
    lock = Lock(tmp_path / "run")
    lock.require_held()
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="run was removed, moved or replaced while the run was"):
        lock.require_held()
    Lock(tmp_path / "run")  # somebody else's
    with pytest.raises(ValueError, match="run/lock was removed, moved or replaced"):
        lock.require_held()
    lock.release()


def test_held_reports_lock_state(tmp_path):
    assert not held(tmp_path)
    assert list(tmp_path.iterdir()) == []  # checking creates nothing
    lock = Lock(tmp_path)
    assert held(tmp_path)
    lock.release()
    assert (tmp_path / "lock").exists()
    assert not held(tmp_path)
    assert not held(tmp_path / "nowhere")
    (tmp_path / "odd").mkdir()
    os.mkfifo(tmp_path / "odd" / "lock")
    assert not held(tmp_path / "odd")  # and it does not wait for a writer


def test_retries_while_another_process_checks_lock(tmp_path, monkeypatch):
    """Checking takes the lock for an instant, so acquiring it is retried."""
    Lock(tmp_path).release()
    looking = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    waited = []

    def done_looking(seconds):
        waited.append(seconds)
        if len(waited) == 2:
            os.close(looking)

    monkeypatch.setattr("clearformer.runs.lock.time.sleep", done_looking)
    Lock(tmp_path).release()
    assert len(waited) == 2
