"""G8 and G9 are run by tests/reliability/test_hostile.py; here: that G8 can fail."""

import pytest

from clearformer.selftest import untrusted_files
from clearformer.selftest.processes import Missed


def test_g8_fails_if_payload_runs(tmp_path, monkeypatch):
    def trusting(path):
        (path.parents[1] / "marker").touch()

    monkeypatch.setattr(untrusted_files, "PickleFile", trusting)
    with pytest.raises(Missed, match="ran the payload"):
        untrusted_files.pickles(tmp_path, every_verb=0)
