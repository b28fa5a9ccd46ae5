"""Corpora by name."""

import builtins
import re

import pytest

from clearformer.data import CORPORA, DataFolders, LabelledCorpus, PairCorpus, TextCorpus, corpus

NOWHERE = DataFolders()


def test_corpus_names_and_kinds():
    assert set(CORPORA) == {
        "python-docs",
        "python-code",
        "shakespeare",
        "enwik8",
        "imdb",
        "multi30k",
        "wikitext2",
        "number-words",
    }
    kinds = {name: type(each) for name, each in CORPORA.items()}
    assert kinds["imdb"] is LabelledCorpus
    assert kinds["multi30k"] is PairCorpus
    assert kinds["enwik8"] is TextCorpus
    for each in CORPORA.values():
        assert each.about
        assert each.parts[0] == "train"


def test_rejects_unknown_names_and_parts():
    with pytest.raises(
        ValueError, match=re.escape("there is no corpus 'enwiki8': did you mean 'enwik8'?")
    ):
        corpus("enwiki8")
    with pytest.raises(
        ValueError, match="there is no corpus 'zzz': known: python-docs, python-code"
    ):
        corpus("zzz")
    sentence = "enwik8 has no part 'dev': choose one of train, validation, test"
    with pytest.raises(ValueError, match=sentence):
        corpus("enwik8").read("dev", NOWHERE)


def test_python_docs_are_available_offline():
    text = corpus("python-docs").read("train", NOWHERE)
    assert text.size > 300_000
    assert "Assert statements are a convenient way" in "".join(text.decoded())
    assert corpus("python-docs").read("train", NOWHERE).sha256 == text.sha256


def test_python_docs_need_pydoc_data(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("pydoc_data"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match="python-docs: this Python comes without pydoc_data"):
        corpus("python-docs").read("train", NOWHERE)


def test_python_code_is_standard_library_sorted():
    text = corpus("python-code").read("train", NOWHERE)
    names = [piece.name.removeprefix("python-code: ") for piece in text.pieces]
    assert names == sorted(names)
    assert {"abc.py", "json/decoder.py"} <= set(names)
    assert not [name for name in names if {"test", "tests", "site-packages"} & set(name.split("/"))]
    assert text.size > 5_000_000
    assert corpus("python-code").read("train", NOWHERE).sha256 == text.sha256


def test_python_code_skips_invalid_text(tmp_path, monkeypatch):
    for name, content in {
        "b.py": b"b = 1\n", "a/c.py": b"c = 2", "latin.py": b"# \xe9", "nul.py": b"\0",
        "empty.py": b"", "test/t.py": b"no", "site-packages/s.py": b"no", "x.txt": b"no",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert corpus("python-code").read("train", NOWHERE).read() == b"c = 2\nb = 1\n"
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match="nothing has no sources: use another corpus"):
        corpus("python-code").read("train", NOWHERE)
