"""Output that cannot be written is dropped where the work matters more."""

import contextlib
import os
import sys

import pytest

from clearformer.cli.standard_streams import optional_output, silence


@contextlib.contextmanager
def unread(monkeypatch):
    """A pipe without a reader as standard output, replacing pytest's."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        yield stream
        silence(write)


def test_optional_output_ignores_broken_pipe(monkeypatch):
    with unread(monkeypatch) as stream:
        with optional_output():
            print("nobody reads this", flush=True)
            print("nor this", flush=True)
        assert sys.stdout is stream
        print("nor what comes after", flush=True)


def test_broken_pipe_raises_otherwise(monkeypatch):
    with unread(monkeypatch), pytest.raises(BrokenPipeError):
        print("nobody reads this", flush=True)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_optional_output_ignores_full_disk(monkeypatch):
    with open("/dev/full", "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with optional_output():
            print("no space for this", file=sys.stderr, flush=True)


def test_optional_output_writes_normally(tmp_path, monkeypatch):
    log = tmp_path / "log"
    with log.open("w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        print("before")
        with optional_output():
            print("inside, caf\u00e9")
        print("after")
    assert log.read_text(encoding="utf-8") == "before\ninside, caf\u00e9\nafter\n"


def test_optional_output_keeps_captured_streams(capsys):
    with optional_output():
        print("captured")
    assert capsys.readouterr().out == "captured\n"


def test_optional_output_does_not_wait_for_full_pipe(monkeypatch):
    read, write = os.pipe()
    os.set_blocking(write, False)
    with open(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with optional_output():
            for _ in range(100):
                print("x" * 2**16, flush=True)
    os.close(read)
