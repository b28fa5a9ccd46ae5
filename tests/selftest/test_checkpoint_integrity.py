"""G5 and G16, and that they can fail."""

import pytest

from clearformer.runs import checkpoint
from clearformer.selftest import checkpoint_integrity
from clearformer.selftest.processes import Missed


def test_f6_g5_every_damage_is_detected(tmp_path):
    assert checkpoint_integrity.corruption(tmp_path, count=60).startswith("60 of 60 detected")


def test_g5_fails_without_hash_checks(tmp_path, monkeypatch):
    known = {}
    identity = checkpoint._identity
    monkeypatch.setattr(
        checkpoint, "_identity", lambda path: known.setdefault(path.name, identity(path))
    )
    with pytest.raises(Missed, match="not detected"):
        checkpoint_integrity.corruption(tmp_path, count=60)


def test_g16_every_format_opens(tmp_path):
    assert (
        checkpoint_integrity.formats(tmp_path, newest=False)
        == f"all {checkpoint.FORMAT} of 2 formats"
    )
