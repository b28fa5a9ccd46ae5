"""The `stop` file, which asks the current run to stop."""

import os

import pytest

from clearformer.runs import stop_request
from clearformer.runs.lock import Lock


def test_request_is_an_empty_file(tmp_path):
    lock = Lock(tmp_path)
    assert not stop_request.requested(tmp_path)
    stop_request.request(tmp_path)
    stop_request.request(tmp_path)  # twice is once
    assert (tmp_path / "stop").read_bytes() == b""
    assert stop_request.requested(tmp_path)
    assert stop_request.clear(tmp_path)
    assert not stop_request.clear(tmp_path)
    assert not stop_request.requested(tmp_path)
    lock.release()


def test_rejects_request_for_finished_run(tmp_path):
    for _ in range(2):  # never locked, and locked before
        with pytest.raises(ValueError, match="so there is nothing to stop: for a run on another"):
            stop_request.request(tmp_path)
        assert not (tmp_path / "stop").exists()
        Lock(tmp_path).release()


def test_request_does_not_follow_symlink(tmp_path):
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    lock = Lock(run)
    (run / "stop").symlink_to(outside)
    stop_request.request(run)
    assert not outside.exists()
    outside.write_text("precious")
    assert stop_request.clear(run)
    assert outside.read_text() == "precious"
    lock.release()


def test_folder_named_stop_is_ignored(tmp_path):
    (tmp_path / "stop").mkdir()
    assert not stop_request.requested(tmp_path)
    assert not stop_request.clear(tmp_path)
    (tmp_path / "stop").rmdir()
    os.mkfifo(tmp_path / "stop")
    assert stop_request.clear(tmp_path)
