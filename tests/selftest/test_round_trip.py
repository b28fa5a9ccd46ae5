"""G15; tests/hub/test_parity.py compares many more models."""

import pytest

from clearformer.selftest import round_trip
from clearformer.selftest.processes import Skipped


def test_f13_f43_g15_round_trip(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    gpt2 = {k: v for k, v in round_trip._configs().items() if k.startswith("gpt2")}
    monkeypatch.setattr(round_trip, "_configs", lambda: gpt2)
    assert round_trip.round_trip(tmp_path).startswith("2 models through transformers")


def test_g15_is_skipped_without_transformers(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(Skipped, match="transformers is not installed"):
        round_trip.round_trip(tmp_path)
