"""Device and thread selection."""

import os

import pytest
import torch

from clearformer.training.device import device_of, set_threads


def test_device_by_name_or_auto():
    assert device_of("cpu") == torch.device("cpu")
    assert device_of("auto").type in ("cpu", "cuda", "mps")


def test_rejects_unknown_device():
    with pytest.raises(ValueError, match=r"^device is 'abacus', which this torch cannot use"):
        device_of("abacus")


def test_number_of_threads_is_limited(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    used = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    assert [set_threads(n) for n in (1, 64, 65, 1024)] == [1, 64, 64, 64]
    monkeypatch.setattr(os, "cpu_count", lambda: 100)
    assert set_threads(1024) == 400
    assert used == [1, 64, 64, 64, 400]
    assert torch.get_num_threads() == before
