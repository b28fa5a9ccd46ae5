"""`benchmarks/claims.py`: a run that was stopped goes on, and a claim can be tried alone."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
claims = pytest.importorskip("claims")


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    """A ledger whose chapters are not run: `ran` lists them, `fails` is the one that breaks."""
    found = SimpleNamespace(ran=[], fails=None)

    def run(words, **settings):
        number = int(words[2])
        found.ran.append(number)
        return subprocess.CompletedProcess(words, number == found.fails, f"| row of {number} |\n")

    monkeypatch.setattr(claims, "STORE", tmp_path / "claims.jsonl")
    monkeypatch.setattr(claims, "PAGE", tmp_path / "claims.md")
    monkeypatch.setattr(claims.subprocess, "run", run)
    return found


def test_goes_on_where_it_stopped(ledger, capsys):
    ledger.fails = 3
    with pytest.raises(SystemExit, match="chapter 3 failed; the chapters before it are stored"):
        claims.run_all(fresh=False)
    assert ledger.ran == [1, 2, 3]
    ledger.ran, ledger.fails = [], None
    rows = claims.run_all(fresh=False)
    assert ledger.ran == list(range(3, 17))
    assert rows == [f"| row of {number} |" for number in range(1, 17)]
    assert "3-queries-keys-values: 0 of 14 chapters run" in capsys.readouterr().err


def test_changed_chapters_and_fresh_runs_are_run_again(ledger, monkeypatch):
    claims.run_all(fresh=False)
    ledger.ran = []
    claims.run_all(fresh=False)
    assert ledger.ran == []
    real = claims.fingerprint
    monkeypatch.setattr(claims, "fingerprint", lambda number: real(number) + "x" * (number == 5))
    claims.run_all(fresh=False)
    assert ledger.ran == [5]
    claims.run_all(fresh=True)
    assert ledger.ran == [5, *range(1, 17)]


def test_whole_run_writes_page(ledger, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["claims.py"])
    claims.main()
    text = claims.PAGE.read_text()
    assert text.startswith(claims.HEADER)
    assert text.endswith("| row of 15 |\n| row of 16 |\n")


def test_claim_without_chapter_runs_none(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["claims.py", "--only", "10⁸ CHARACTERS"])
    monkeypatch.setattr(claims.Chapter, "names", property(lambda self: pytest.fail("it ran")))
    claims.main()
    (line,) = capsys.readouterr().out.splitlines()
    assert line in (ROOT / "docs/claims.md").read_text().splitlines()


def test_one_claim_is_tried_alone(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["claims.py", "--only", "two matrix multiplications"])
    monkeypatch.setattr(claims.Chapter, "names", {"difference": 1e-3})
    claims.main()
    assert "differs from the loop by 1e-03 | not here |" in capsys.readouterr().out


def test_unknown_words_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["claims.py", "--only", "no such words"])
    with pytest.raises(SystemExit) as problem:
        claims.main()
    assert problem.value.code == 2
    assert "no claim has the words 'no such words'" in capsys.readouterr().err
