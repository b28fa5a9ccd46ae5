"""`clearformer ablate`: the table of the library, as text and as JSON."""

import json

import pytest

import clearformer as cf
from clearformer.interpretability import ablate


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny text generator, trained for a few steps."""
    folder = tmp_path_factory.mktemp("ablate")
    (folder / "text.txt").write_text("the cat sat on the mat. " * 60)
    cf.train(
        "modern-tiny", data=str(folder / "text.txt"), out=str(folder / "run"), steps=2,
        layers=2, width=16, heads=2, hidden=32, length=32, threads=1,
    )  # fmt: skip
    return str(folder / "run")


def test_prints_the_largest_changes_first(clearformer, run):
    done = clearformer("ablate", run, "the cat", "--top", "3")
    assert done.code == 0, done.err
    expected = ablate(cf.load(run), "the cat")
    lines = done.out.splitlines()
    assert lines[0] == f"loss of the whole model: {expected.baseline:.4f}"
    assert len(lines) == 6
    first = expected.rows()[0]
    assert lines[2].split()[-1] == f"{first['change']:+.4f}"
    assert f"layer {first['layer']}" in lines[2]
    assert lines[-1] == "3 more with smaller changes: --top 6"


def test_json_has_everything(clearformer, run):
    done = clearformer("ablate", run, "the cat", "--right", "a", "--wrong", "t", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    expected = ablate(cf.load(run), "the cat", right="a", wrong="t")
    assert found["metric"] == "logit difference"
    assert found["baseline"] == pytest.approx(expected.baseline, abs=1e-5)
    assert len(found["rows"]) == 6


def test_of_a_translator(clearformer, trained_translator):
    folder = str(trained_translator)
    done = clearformer("ablate", folder, "abc", "--part", "cross", "--json")
    assert done.code == 0, done.err
    assert {row["component"] for row in json.loads(done.out)["rows"]} == {"head"}
    done = clearformer("ablate", folder, "abc", "--target", "cba", "--part", "decoder")
    assert "MLP" in done.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the text is missing: write it after the run"),
        (["the", "--top", "0"], "--top is 0, but it must be at least 1"),
        (["the", "--wrong", "a"], "wrong is given without right"),
        (["the", "--right", "at"], "right is 'at', which is 2 tokens, but it must be one"),
        (["the", "--target", "a"], "--target is for translators"),
        (["the", "--part", "cross"], "there is no part 'cross' in this model: there is self"),
    ],
)
def test_messages(clearformer, run, words, sentence):
    assert sentence in clearformer("ablate", run, *words).complaint
