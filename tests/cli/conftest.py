"""Fixtures: a small generator for the command-line tests."""

import json
from dataclasses import replace

import pytest

import clearformer as cf
from clearformer.families import bert
from clearformer.text import train as train_tokenizer

TINY = ("--length", "32", "--layers", "1", "--width", "16", "--heads", "4", "--model.hidden", "32",
        "--batch-size", "8", "--threads", "1", "--lr", "0.01", "--steps", "60",
        "--evaluations", "1")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with a small byte-level generator, its text and its cache."""
    folder = tmp_path_factory.mktemp("writing")
    (folder / "t.txt").write_text("\n".join(f"{i} green bottles" for i in range(300)))
    return folder


@pytest.fixture
def run(folder, clearformer, monkeypatch):
    """The run of that generator, unless a file of tests has another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    out = folder / "run"
    if not out.exists():
        done = clearformer(
            "train", "modern", "--data", str(folder / "t.txt"), "--out", str(out), *TINY
        )
        assert done.code == 0, done.err
    return str(out)


FEW = ("--steps", "2", "--evaluations", "1", "--threads", "1", "--compile", "off", "--quiet")
WORDS = "mary john lives in rome oslo who where ? ."


@pytest.fixture(scope="session")
def tuning_folder(tmp_path_factory):
    """A small BERT, and the files to fine-tune it with."""
    folder = tmp_path_factory.mktemp("verbs")
    tokenizer = train_tokenizer("wordpiece", [WORDS] * 3, 100)
    config = replace(
        bert("tiny"), vocabulary=tokenizer.size, length=24, layers=1, width=16, heads=2, hidden=32
    )
    cf.Model(cf.build(config), config, tokenizer).save(folder / "bert")
    (folder / "names.conll").write_text(
        "\n\n".join(f"mary B-PER\nlives O\nin O\nrome{n} B-LOC" for n in range(20))
    )
    rows = [
        {"question": "who ?", "context": f"mary lives in rome {n}", "answer": "mary"}
        for n in range(20)
    ]
    (folder / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pairs = (f"mary {n},rome,{'yes' if n % 2 else 'no'}" for n in range(20))
    (folder / "pairs.csv").write_text("\n".join(("a,b,c", *pairs)))
    return folder


@pytest.fixture
def tuned(tuning_folder, clearformer, monkeypatch):
    """The run of a head, trained when it is first asked for."""
    folder = tuning_folder
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    data = {"label": "names.conll", "answer": "q.jsonl", "classify-pairs": "pairs.csv"}
    columns = ("--text-column", "a", "--second-column", "b", "--label-column", "c")

    def run(head):
        out = folder / head
        if not out.exists():
            more = columns if head == "classify-pairs" else ()
            done = clearformer(
                "train", head, "--from", str(folder / "bert"), "--data", str(folder / data[head]),
                "--out", str(out), *FEW, *more,
            )  # fmt: skip
            assert done.code == 0, done.err
        return str(out)

    return run
