"""Fixtures: commands for ranks, and two ranks of which one hangs."""

import importlib.util
import os
import signal
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def commands():
    """What ranks run (commands.py)."""
    path = Path(__file__).with_name("commands.py")
    spec = importlib.util.spec_from_file_location("commands", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def hanging(several, commands, tmp_path_factory):
    """The folder and the ranks of a run whose rank 1 was stopped after a step.

    Rank 0 waits 20 seconds for it, long enough that no rank of a busy machine seems to hang, which
    has happened with 2. So the run starts with the first test of a file and is looked at later.
    """
    folder = tmp_path_factory.mktemp("hanging")
    flags = ("--steps", "100000", "--timeout-seconds", "20")
    with several.started(2, commands.train_impatiently, folder, folder, *flags) as ranks:
        commands.until_saved(folder, ranks)
        if hasattr(signal, "SIGSTOP"):
            os.kill(ranks[1].pid, signal.SIGSTOP)
        yield folder, ranks
