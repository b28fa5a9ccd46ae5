"""A run folder for oneself."""

import os

import pytest

from clearformer.train.lock import Lock, require_writable


def test_one_at_a_time_and_its_owner_is_named(tmp_path):
    lock = Lock(tmp_path)
    with pytest.raises(ValueError, match=rf"another process \(process {os.getpid()} on "):
        Lock(tmp_path)
    lock.release()
    again = Lock(tmp_path)
    del again  # thrown away without a word
    Lock(tmp_path)


def test_a_folder_that_cannot_be_one(tmp_path):
    require_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot be written to: Not a directory; choose another"):
        require_writable(tmp_path / "file" / "run")
