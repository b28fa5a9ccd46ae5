"""Fixtures: a trained toy run and the command line, for failure tests."""

import os
import shutil

import pytest

from clearformer.selftest import command_runner
from clearformer.selftest.toy_run import ToyRun


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A toy run of three steps, not to be modified."""
    place = tmp_path_factory.mktemp("toy")
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(place / "cache")
    toy = ToyRun(place, 3)
    outcome = command_runner.run(toy.arguments(place / "run"))
    assert outcome.code == 0, outcome.err
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before
    return place


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A folder with a copy of the toy run and its text."""
    shutil.copytree(trained / "run", tmp_path / "run")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CLEARFORMER_DATA", raising=False)
    (tmp_path / "text.txt").write_bytes((trained / "text.txt").read_bytes())
    return tmp_path


@pytest.fixture
def command(place):
    """Run the command line in this process."""

    def run(*words):
        return command_runner.run([str(word) for word in words])

    return run


@pytest.fixture
def train(place, command):
    """Train the toy run in `place`, or resume it."""

    def run(*flags, folder="run", steps=3):
        toy = ToyRun(place, steps)
        return command(*toy.arguments(place / folder), *flags)

    return run


@pytest.fixture
def refused():
    """The one line of a clean error."""

    def check(outcome, *words):
        assert outcome.code == 2, (outcome.out, outcome.err)
        assert outcome.clean, outcome.err
        for word in words:
            assert word in outcome.err, outcome.err
        return outcome.err

    return check
