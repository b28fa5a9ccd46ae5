"""Loading a learner's answer file: each problem is one sentence."""

import sys

import pytest

from clearformer.learn.answers import load_answer


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def raw_scores(x)\n    return x", r"my\.py, line 1: expected ':'"),
        ("import torch\n1 / 0", r"my\.py fails: ZeroDivisionError: division by zero \(line 2\)"),
        ("import no_such_thing", r"my\.py fails: ModuleNotFoundError: .*\(line 1\)"),
        ("raise SystemExit", r"my\.py fails: SystemExit \(line 1\)"),
        ("def raw_score(x): ...", r"has no function raw_scores: did you mean raw_score to be it\?"),
        ("", r"has no function raw_scores: define one"),
        ("raw_scores = 3", r"raw_scores is a int, but it must be a function"),
    ],
)
def test_rejects_invalid_answer_files(tmp_path, text, said):
    (tmp_path / "my.py").write_text(text)
    with pytest.raises(ValueError, match=said) as caught:
        load_answer(tmp_path / "my.py", "raw_scores")
    assert "\n" not in str(caught.value)


def test_rejects_missing_and_non_python_files(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        load_answer(tmp_path / "my.py", "f")
    (tmp_path / "my.txt").write_text("def f(): ...")
    with pytest.raises(ValueError, match=r"its name must end in \.py"):
        load_answer(tmp_path / "my.txt", "f")


def test_imports_neighbour_files_and_restores_path(tmp_path):
    before = list(sys.path)
    (tmp_path / "beside_it.py").write_text("number = 7")
    (tmp_path / "my.py").write_text("import beside_it\n\ndef f():\n    return beside_it.number\n")
    try:
        assert load_answer(tmp_path / "my.py", "f")() == 7
    finally:
        sys.modules.pop("beside_it", None)
    assert sys.path == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beside_it.py", "my.py"]
