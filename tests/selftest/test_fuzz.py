"""G7 in a small dose, and that it can fail."""

import random
from pathlib import Path

import pytest

from clearformer.selftest import command_runner, fuzz
from clearformer.selftest.processes import Missed

COUNTS = {
    "safetensors": 150,
    "pickles": 60,
    "tokenizers": 80,
    "configs": 40,
    "tables": 40,
    "commands": 3,
}


@pytest.mark.parametrize("kind", fuzz.KINDS)
@pytest.mark.filterwarnings("default")
def test_f45_g7_damaged_files_are_rejected_or_work(tmp_path, kind):
    attempts = fuzz.KINDS[kind](tmp_path, random.Random(11).randrange)
    refused = [fuzz._refused(kind, each) for _, each in zip(range(COUNTS[kind]), attempts)]  # noqa: B905
    assert sum(refused) > COUNTS[kind] // 4


def test_g7_fails_on_other_exceptions_and_multiline_errors():
    def broken():
        raise KeyError("x")

    with pytest.raises(Missed, match="x: KeyError"):
        fuzz._refused("x", broken)

    def two_lines():
        raise ValueError("a\nb")

    with pytest.raises(Missed, match="more than a line"):
        fuzz._refused("x", two_lines)


def test_g7_commands_run_inside_temporary_folder(tmp_path, monkeypatch):
    where = []

    def noted(words):
        where.append(Path.cwd())
        return command_runner.Outcome(2, "", "clearformer: refused")

    monkeypatch.setattr(fuzz.command_runner, "run", noted)
    attempt = next(fuzz.KINDS["commands"](tmp_path, random.Random(11).randrange))
    assert fuzz._refused("commands", attempt)
    (here,) = where
    assert (here / "../..").resolve() == tmp_path.resolve()
    assert Path.cwd() != here
