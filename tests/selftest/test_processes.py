"""Processes of their own: what they say, how they end, and that a hang has an end."""

import os
import time

import pytest

from clearformer.selftest import processes
from clearformer.selftest.processes import Missed


def test_a_command_says_and_leaves(tmp_path):
    child = processes.Child(["train", "gpt3"], tmp_path / "log", {})
    assert child.wait() == 2
    assert "there is no model 'gpt3'" in child.output()


def test_a_function_answers_from_another_process():
    assert processes.call(os.getpid) != os.getpid()
    with pytest.raises(Missed, match="sleep did not end in 0 s"):
        processes.call(time.sleep, 60, seconds=0.2)
    with pytest.raises(Missed, match="and no result"):
        processes.call(os._exit, 7)


def test_memory_is_told():
    assert processes.peak_memory() > 2**20


def test_a_miss_has_its_reason():
    with pytest.raises(Missed, match="why"):
        processes.require(False, "why")
