"""Rules of the ledger for chapters 6 to 9: verdicts from numbers, and figures of results.md."""

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
claims_tasks = pytest.importorskip("claims_tasks")


def named(text):
    (claim,) = (each for each in claims_tasks.CLAIMS if text in each.text)
    return claim


def test_recorded_figures_match_results():
    text = (ROOT / "docs/results.md").read_text()
    for row, figure in (
        ("the seed's shape", "85.78"),
        ("an LSTM, one layer", "87.08"),
        ("an LSTM of two layers", "2.371"),
    ):
        assert claims_tasks.last_cell(row) == float(figure)
        assert figure in text
    assert claims_tasks.minutes("the seed's shape") == 60
    with pytest.raises(AssertionError):
        claims_tasks.last_cell("a row that is not there")


def test_refuted_claims_are_listed_as_errata():
    errata = (ROOT / "docs/errata.md").read_text()
    ledger = (ROOT / "docs/claims.md").read_text().splitlines()
    refuted = [row.split('"')[1] for row in ledger if "| refuted |" in row]
    quoted = {
        "[than RNN models] much faster to train": "much faster to train",
        "linear transformations, which perfectly preserve the gradient": "perfectly preserve",
        "enwik8 [...] contains 10⁸ characters of Wikipedia text": "characters",
    }
    assert quoted.keys() <= set(refuted)
    for words in quoted.values():
        assert words in errata
    assert named("much faster to train").judge({})[1] == "refuted"
    assert named("10⁸ characters").judge({})[1] == "refuted"


def test_untested_claims_have_a_command():
    untried = [each for each in claims_tasks.CLAIMS if each.text in UNTRIED]
    assert len(untried) == len(UNTRIED)
    for claim in untried:
        assert claim.judge({})[1] == "could not be tried"
        assert claim.command


UNTRIED = (
    "the most common way [...] is to apply global average pooling",
    "a compression of 1.343 bits per byte [...] after about 24 hours",
    "not too far off the state of the art of 0.93 bits per byte",
)


@pytest.mark.parametrize(
    ("text", "names", "verdict"),
    [
        ("shuffle", {"invariant": 1e-16, "sensitive": 0.1}, "holds"),
        ("shuffle", {"invariant": 1e-3, "sensitive": 0.1}, "not here"),
        ("kernel size", {"reach": {1: 2}}, "holds"),
        ("kernel size", {"reach": {1: 3}}, "not here"),
        ("cannot look forward", {"ahead": {"LSTM": 0.0}}, "holds"),
        ("vacuously", {"leaks": {"no mask": [0.2], "masked": [3.0]}}, "holds"),
        ("vacuously", {"leaks": {"no mask": [2.9], "masked": [3.0]}}, "not here"),
        ("softened", {"softness": [1.0, 0.0]}, "holds"),
        (
            "coherence",
            {"coherence": {"transformer": torch.ones(3, 20), "LSTM": torch.zeros(3, 20)}},
            "holds",
        ),
        (
            "coherence",
            {"coherence": {"transformer": torch.ones(3, 20), "LSTM": torch.ones(3, 20)}},
            "not here",
        ),
        (
            "perfectly preserve",
            {"gradients": {"24 linear layers": [1e-6], "24 orthogonal layers": [1.0]}},
            "refuted",
        ),
        (
            "perfectly preserve",
            {"gradients": {"24 linear layers": [1.0], "24 orthogonal layers": [1.0]}},
            "not here",
        ),
    ],
)
def test_verdict_follows_from_the_numbers(text, names, verdict):
    assert named(text).judge(names)[1] == verdict
