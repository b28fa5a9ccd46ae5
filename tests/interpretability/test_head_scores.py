"""Scores of heads: of attention that is built to have them, and of plain weights."""

import pytest
import torch

from clearformer.explore.trace import trace
from clearformer.interpretability import head_scores, previous_token_scores
from clearformer.interpretability.head_scores import _scores
from clearformer.interventions import attention, edit

TOKENS = torch.tensor([5, 17, 3, 9, 17, 3, 11])


def test_perfect_heads_score_one():
    length = 4
    weights = torch.zeros(1, 3, 8, 8)
    for query in range(1, 8):
        weights[0, 0, query, query - 1] = 1
    for query in range(4, 8):
        weights[0, 1, query, query - 4] = 1
        weights[0, 2, query, query - 3] = 1
    previous, duplicate, induction = _scores(weights, length)
    assert previous[0].tolist() == pytest.approx([1, 0, 0])
    assert duplicate[0].tolist() == [0, 1, 0]
    assert induction[0].tolist() == [0, 0, 1]


def test_previous_token_scores_of_a_text(gpt2, plain):
    seen = {}

    def keep(stage, layer, x):
        seen[stage, layer] = x.detach()
        return x

    plain(gpt2, TOKENS, keep)
    expected = torch.stack([
        torch.stack([seen["weights", layer][:, q, q - 1] for q in range(1, 7)]).mean(0)
        for layer in range(3)
    ])  # fmt: skip
    found = previous_token_scores(trace(gpt2, TOKENS))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_measured_inside_an_edit(gpt2):
    shifted = torch.eye(20)[[0, *range(19)]]
    with edit(gpt2, replace={attention(1, 2): shifted}):
        found = head_scores(gpt2, length=10, samples=1)
    assert float(found.previous[1, 2]) == pytest.approx(1)
    assert found.previous.shape == found.duplicate.shape == found.induction.shape == (3, 4)
    assert found.rows()[-1]["induction"] <= found.rows()[0]["induction"]


def test_the_seed_decides(gpt2):
    first, second = (head_scores(gpt2, length=5, seed=3) for _ in range(2))
    assert torch.equal(first.induction, second.induction)
    assert not torch.equal(first.induction, head_scores(gpt2, length=5, seed=4).induction)


def test_messages(gpt2):
    with pytest.raises(ValueError, match="the text has one token, which has none before it"):
        previous_token_scores(trace(gpt2, TOKENS[:1]))
    with pytest.raises(ValueError, match="`length` is 1, but it must be at least 2"):
        head_scores(gpt2, length=1)
