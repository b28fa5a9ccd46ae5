"""`clearformer verify`: exit codes, formats and files."""

import json
from xml.etree import ElementTree

import pytest

from clearformer.cli.main import main

FILE = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, factor=0.25):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.factor = factor

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        return self.o((q @ k.transpose(1, 2) * self.factor).softmax(-1) @ v)

class Needs(nn.Module):
    def __init__(self, width):
        super().__init__()
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *words):
    with pytest.raises(SystemExit) as leaving:
        main(["verify", *words])
    return leaving.value.code, capsys.readouterr()


def test_exit_codes_and_text(mine, capsys):
    code, told = run(capsys, "mine.py:Attention")
    assert (code, told.err) == (0, "")
    assert "0 findings" in told.out
    code, told = run(capsys, "mine.py:Attention(1.0)")
    assert code == 1
    assert "scale-missing" in told.out
    code, told = run(capsys, "mine.py:Needs")
    assert code == 2
    assert told.err.startswith("clearformer: Needs needs arguments to be built (width)")
    assert told.err.count("\n") == 1


def test_json_junit_and_saved_tests(mine, capsys):
    words = ("mine.py:Attention(1.0)", "--json", "--junit", "out.xml", "--save-tests", "tests")
    code, told = run(capsys, *words)
    assert code == 1
    assert json.loads(told.out)["findings"][0]["name"] == "scale-missing"
    assert ElementTree.parse(mine / "out.xml").getroot().attrib["failures"] == "1"
    assert "only=['scale-missing']" in (mine / "tests/test_scale_missing.py").read_text()


def test_only_skip_and_as_flags(mine, capsys):
    assert run(capsys, "mine.py:Attention(1.0)", "--skip", "scale-missing")[0] == 0
    assert run(capsys, "mine.py:Attention(1.0)", "--only", "future-leak")[0] == 0
    code, told = run(capsys, "mine.py:Attention", "--as", "causal-attention")
    assert code == 1
    assert "future-leak" in told.out
    code, told = run(capsys, "mine.py:Attention", "--only", "future-leek")
    assert (code, told.err.count("\n")) == (2, 1)


def test_explain_and_list_checks(capsys):
    main(["verify", "--explain", "softmax-axis"])
    assert "scores.softmax(dim=-1)" in capsys.readouterr().out
    main(["verify"])
    assert "future-leak" in capsys.readouterr().out


def test_warns_before_metrics_of_wrong_model(capsys):
    import torch
    from torch import nn

    from clearformer.cli.verify import warn

    class Attention(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
            self.factor = factor

        def forward(self, x):
            q, k, v = self.q(x), self.k(x), self.v(x)
            return self.o((q @ k.transpose(1, 2) * self.factor).softmax(-1) @ v)

    torch.manual_seed(0)
    warn(Attention(1.0))
    assert capsys.readouterr().err.startswith("warning: scale-missing: scores are not scaled")
    warn(Attention(0.25))
    assert capsys.readouterr().err.startswith("verified: ")
    warn(nn.Identity())
    capsys.readouterr()


def test_evaluate_verifies_first(trained_translator, capsys):
    main(["evaluate", str(trained_translator), "--verify"])
    assert "verified: " in capsys.readouterr().err


def test_train_verifies_the_model_that_it_trains(tmp_path, capsys, monkeypatch):
    from clearformer.runs import run

    built = []
    make = run.Run.__init__.__kwdefaults__["make"]
    monkeypatch.setitem(
        run.Run.__init__.__kwdefaults__, "make", lambda *a: built.append(1) or make(*a)
    )
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. " * 200)
    sizes = ["--layers", "1", "--width", "16", "--heads", "2", "--key-heads", "1", "--length", "16"]
    words = ["--data", str(text), "--out", str(tmp_path / "run"), "--steps", "1", "--verify"]
    with pytest.raises(SystemExit) as end:
        main(["train", "modern-tiny", *words, *sizes, "--quiet"])
    assert end.value.code in (0, None)
    assert "verified: " in capsys.readouterr().err
    assert len(built) == 1
