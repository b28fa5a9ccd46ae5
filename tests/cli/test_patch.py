"""`clearformer patch`: the grid of the library, as a table and as JSON."""

import json

import pytest
import torch

import clearformer as cf
from clearformer.interpretability import patch


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny text generator, trained for a few steps."""
    folder = tmp_path_factory.mktemp("patch")
    (folder / "text.txt").write_text("the dog sat on the log. " * 60)
    cf.train(
        "modern-tiny", data=str(folder / "text.txt"), out=str(folder / "run"), steps=2,
        layers=2, width=16, heads=2, hidden=32, length=32, threads=1,
    )  # fmt: skip
    return str(folder / "run")


def test_json_is_the_grid_of_the_library(clearformer, run):
    words = ("the dog", "the log", "--right", "s", "--wrong", "t")
    done = clearformer("patch", run, *words, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    expected = patch(cf.load(run), "the dog", "the log", right="s", wrong="t")
    torch.testing.assert_close(torch.tensor(found["values"]), expected.values)
    assert found["tokens"] == list("the log")
    assert found["clean"] == pytest.approx(expected.clean)


def test_prints_a_table(clearformer, run):
    words = ("the dog", "the log", "--right", "s", "--by", "head")
    done = clearformer("patch", run, *words)
    assert done.code == 0, done.err
    assert "with head_out of the clean text, by layer and head:" in done.out
    assert "layer 1" in done.out
    assert "head 1" in done.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["the dog"], "two texts are needed: write the clean and the corrupted one"),
        (["the dog", "the log"], "--right is missing: name the token"),
        (["the dog", "the", "--right", "s"], "the clean text has 7 tokens and the corrupted one 3"),
        (["a", "b", "--right", "s", "--stage", "logits"], "stage is 'logits', but by position"),
    ],
)
def test_messages(clearformer, run, words, sentence):
    assert sentence in clearformer("patch", run, *words).complaint
