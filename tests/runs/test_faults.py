"""Fault injection settings."""

import os
import signal

import pytest
import torch

from clearformer.runs import faults
from clearformer.runs.faults import Faults, parse


def test_without_setting_no_fault_is_injected(monkeypatch):
    assert parse(None) == parse("") == Faults()
    monkeypatch.setattr(os, "kill", lambda *arguments: pytest.fail("nothing was asked for"))
    for point in faults.POINTS:
        Faults().reached(1)(point)
    assert len(faults.POINTS) >= 8


def test_crash_kills_at_given_point_and_step(monkeypatch):
    killed = []
    monkeypatch.setattr(os, "kill", lambda *arguments: killed.append(arguments))
    fault = parse("crash:before_manifest@20")
    fault.reached(19)("before_manifest")
    fault.reached(20)("before_rename")
    assert killed == []
    fault.reached(20)("before_manifest")
    assert killed == [(os.getpid(), signal.SIGKILL)]


def test_enospc_and_nan_faults():
    with pytest.raises(OSError, match="No space left on device"):
        parse("enospc").reached(1)("after_model")

    def loss(batch):
        return torch.ones(1), torch.ones(1)

    fault = parse("nan@3")
    assert fault.spoil(2, loss) is loss
    assert fault.spoil(3, loss)(None)[0].isnan()


@pytest.mark.parametrize("text", ["crash", "crash:nowhere", "nan@0", "nan@x", "nan@", "enospc@-1"])
def test_rejects_unknown_fault(text):
    with pytest.raises(ValueError, match="CLEARFORMER_FAULT is"):
        parse(text)
