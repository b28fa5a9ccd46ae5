"""G12 and G13 in a small dose; tests/cli/test_launch.py has more."""

import pytest

from clearformer.selftest import ranks
from clearformer.selftest.nursery import Missed


def test_f32_g13_success_is_success(tmp_path):
    assert ranks.clean_exit(tmp_path, count=1) == "1 of 1 runs of 2 processes left with 0"


def test_a_run_that_fails_is_missed(tmp_path, monkeypatch):
    class Failed:
        def wait(self):
            return 1

    monkeypatch.setattr(ranks, "_torchrun", lambda *words: Failed())
    with pytest.raises(Missed, match="ddp: run 0 left with 1"):
        ranks.clean_exit(tmp_path, count=1)
