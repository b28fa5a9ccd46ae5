"""Child processes: output, exit codes, and timeouts."""

import os
import time

import pytest

from clearformer.selftest import processes
from clearformer.selftest.processes import Missed


def test_child_returns_output_and_exit_code(tmp_path):
    child = processes.Child(["train", "gpt3"], tmp_path / "log", {})
    assert child.wait() == 2
    assert "there is no model 'gpt3'" in child.output()


def test_call_runs_function_in_other_process():
    assert processes.call(os.getpid) != os.getpid()
    with pytest.raises(Missed, match="sleep did not end in 0 s"):
        processes.call(time.sleep, 60, seconds=0.2)
    with pytest.raises(Missed, match="and no result"):
        processes.call(os._exit, 7)


def test_peak_memory():
    assert processes.peak_memory() > 2**20


def test_require_raises_with_reason():
    with pytest.raises(Missed, match="why"):
        processes.require(False, "why")
