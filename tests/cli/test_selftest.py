"""`clearformer selftest`: a line for each goal, exit code 1 if one is missed."""

import json

import pytest

from clearformer.selftest import goals
from clearformer.selftest.processes import Missed


def test_prints_lines_json_and_exit_code(clearformer, monkeypatch):
    def check(place, newest):
        raise Missed("on purpose")

    done = clearformer("selftest", "--only", "G16,G11")
    assert done.code == 0, done.err
    first, second, last = done.out.splitlines()
    assert first.startswith("G16  old checkpoints  reached")
    assert "accumulation 1/2/8" in second
    assert last.startswith("2 reached, 0 missed, 0 skipped; ")
    counts = goals.GOALS["G16"].counts
    monkeypatch.setitem(goals.GOALS, "G16", goals.Goal("old", check, counts))
    done = clearformer("selftest", "--only", "G16", "--json")
    assert done.code == 1
    assert json.loads(done.out)["outcome"] == "missed"
    assert json.loads(done.out)["found"] == "on purpose"


@pytest.mark.parametrize("only", ["G99", "", "1"])
def test_rejects_unknown_goals(clearformer, only):
    assert "there is no goal" in clearformer("selftest", "--only", only).complaint
