"""`clearformer learn`: list, show, check, hint, solution."""

import pytest

from clearformer.learn import chapters


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def write(path, body):
    path.write_text(f"import torch\n\ndef raw_scores(x):\n    {body}\n")


def test_list_shows_progress(clearformer, tmp_path):
    assert "  1.1  Eq. 1: all dot products\n" in clearformer("learn").out
    write(tmp_path / "my.py", "return x")
    clearformer("learn", "check", "1.1", "my.py")
    write(tmp_path / "my.py", "return x @ x.mT")
    assert clearformer("learn", "check", "1.1", "my.py").code == 0
    listed = clearformer("learn").out
    assert "1.1  Eq. 1: all dot products                      solved\n" in listed
    total = sum(len(chapter.exercises) for chapter in chapters())
    assert f"1 of {total} solved." in listed


def test_show_prints_signature(clearformer):
    shown = clearformer("learn", "show", "3.1").out
    assert "def scores(x, to_queries, to_keys):" in shown
    assert max(map(len, shown.splitlines())) <= 88


def test_check_explains_wrong_answer(clearformer, tmp_path):
    write(tmp_path / "my.py", "return x.mT @ x")
    done = clearformer("learn", "check", "1.1", "my.py")
    assert done.code == 1
    assert done.out.startswith("1.1: not yet: this compares features, not tokens")
    assert done.out.endswith("help: clearformer learn hint 1.1\n")


def test_error_in_answer_file_is_one_line(clearformer, tmp_path):
    (tmp_path / "my.py").write_text("import torch\nraise ValueError('a\\x1b[2Jb')\n")
    said = clearformer("learn", "check", "1.1", "my.py").complaint
    assert said == "my.py fails: ValueError: a\\x1b[2Jb (line 2)"


def test_hint_and_solution(clearformer):
    assert clearformer("learn", "hint", "1.1").out.startswith("hint 1 of 3: ")
    assert clearformer("learn", "hint", "1.1").out.startswith("hint 2 of 3: ")
    assert clearformer("learn", "solution", "1.1").out.startswith("def raw_scores(")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hint",), "learn hint needs an exercise: clearformer learn hint 1.1; clearformer learn"),
        (("check", "1.1"), "learn check needs a file: write raw_scores into my.py, then"),
        (("check", "7.7", "my.py"), "there is no exercise '7.7': known: 1.1, 1.2"),
        (("check", "1.1", "my.py"), "there is no file my.py"),
        (("chekc",), "ACTION is 'chekc', but it must be one of list, show, check, hint, solution"),
    ],
)
def test_rejects_missing_arguments(clearformer, words, said):
    assert clearformer("learn", *words).complaint.startswith(said)
