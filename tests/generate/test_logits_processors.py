"""Logits processors: equal to transformers, with ties resolved by token id."""

import pytest
import torch
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from clearformer.generate import logits_processors

LOGITS = 3 * torch.randn(200, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
SEEN = [3, 1, 4, 1, 5, 9, 2, 6]


def kept(logits):
    return logits.isfinite().nonzero()[:, 0].tolist()


@pytest.mark.parametrize("value", [0.05, 0.3, 0.9, 0.999])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (logits_processors.top_p, TopPLogitsWarper),
        (logits_processors.min_p, MinPLogitsWarper),
        (logits_processors.typical_p, TypicalLogitsWarper),
    ],
)
def test_truncation_matches_transformers(ours, theirs, value):
    expected = theirs(value)(None, LOGITS[None])[0]
    assert kept(ours(LOGITS, value)) == kept(expected)


@pytest.mark.parametrize("k", [1, 7, 100, 200, 500])
def test_top_k_matches_transformers(k):
    assert kept(logits_processors.top_k(LOGITS, k)) == kept(
        TopKLogitsWarper(k)(None, LOGITS[None])[0]
    )


def test_repetition_penalty_matches_transformers():
    expected = RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor([SEEN]), LOGITS[None])[0]
    torch.testing.assert_close(logits_processors.repetition_penalty(LOGITS, SEEN, 1.3), expected)
    assert logits_processors.repetition_penalty(LOGITS, [], 1.3) is LOGITS


def test_frequency_penalty_is_proportional_to_count():
    changed = LOGITS - logits_processors.frequency_penalty(LOGITS, SEEN, 0.5)
    assert changed[1] == pytest.approx(1.0)
    assert changed[3] == pytest.approx(0.5)
    assert changed[0] == 0


def test_exclude_and_keep_only_are_complements():
    assert kept(logits_processors.keep_only(LOGITS, torch.tensor([3, 7]))) == [3, 7]
    assert kept(logits_processors.exclude(LOGITS, [3, 7])) == [
        i for i in range(200) if i not in (3, 7)
    ]


def test_ties_are_resolved_by_id():
    flat = torch.zeros(300, dtype=torch.float64)
    assert kept(logits_processors.top_k(flat, 3)) == [0, 1, 2]
    assert kept(logits_processors.top_p(flat, 0.01)) == [0, 1, 2]
    assert logits_processors.top_sorted(flat, 2)[1].tolist() == list(range(300))


@pytest.mark.parametrize("reach", [0.0, 0.3, 0.9, 0.99999, 1.0])
def test_top_until_matches_full_sort(reach):
    probabilities = torch.randn(5000, dtype=torch.float64).round(decimals=1).softmax(0)
    shares, ids = probabilities.sort(descending=True, stable=True)
    found = logits_processors.top_until(probabilities, reach)
    chosen = logits_processors.largest(probabilities, len(found), float(found[-1]))
    assert ids[: len(found)].sort()[0].equal(chosen.sort()[0])
    assert shares[: len(found)].equal(found)
    assert float(found.sum()) > reach or len(found) == 5000
