"""Pooling heads, BERT's two pretraining objectives, and heads of imported checkpoints."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer.core import heads
from clearformer.core.heads import IGNORE
from clearformer.extensions import heads as more_heads

WIDTH, VOCABULARY = 6, 11


@pytest.fixture
def hidden():
    return torch.randn(3, 5, WIDTH)


def test_pooler_applies_linear_and_tanh_to_first_token(hidden):
    pooler = more_heads.Pooler(WIDTH)
    attention_mask = torch.tensor([[True] * 5, [False, True, True, True, True], [True] * 5])
    first = torch.stack((hidden[0, 0], hidden[1, 1], hidden[2, 0]))
    torch.testing.assert_close(pooler(hidden, attention_mask), torch.tanh(pooler.transform(first)))


def test_pretraining_has_two_objectives(hidden):
    masked = heads.MaskedToken(WIDTH, F.gelu, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))
    head = more_heads.Pretraining(
        masked, heads.Classifier(more_heads.Pooler(WIDTH), WIDTH, classes=2)
    )
    attention_mask = torch.tensor([[True] * 5, [False, True, True, True, True], [True] * 5])
    words, sentence = head(hidden, attention_mask)
    torch.testing.assert_close(words, masked(hidden))
    torch.testing.assert_close(sentence, head.sentence(hidden, attention_mask))
    assert sentence.shape == (3, 2)
    targets = torch.full((3, 5), IGNORE)
    targets[1, 2], targets[2, 4] = 7, 0
    follows = torch.tensor([0, 1, 1])
    totals, counts = head.loss(hidden, (targets, follows), attention_mask)
    assert counts.tolist() == [2, 3]
    torch.testing.assert_close(totals[:1], heads.cross_entropy(words, targets)[0])
    torch.testing.assert_close(totals[1:], heads.cross_entropy(sentence, follows)[0])


def test_features_head_only_pools(hidden):
    head = more_heads.Features(heads.mean_pool)
    assert head(hidden).equal(hidden.mean(dim=1))
    assert list(head.parameters()) == []


def test_token_classifier_logits_and_loss(hidden):
    head = more_heads.TokenClassifier(WIDTH, classes=3, bias=False)
    given = head(hidden)
    torch.testing.assert_close(given, hidden @ head.project.weight.T)
    targets = torch.tensor([[0, 1, 2, IGNORE, IGNORE]] * 3)
    total, count = head.loss(hidden, targets)
    expected = F.cross_entropy(given.flatten(0, 1), targets.flatten(), reduction="sum")
    torch.testing.assert_close(total, expected[None])
    assert count.item() == 9


def test_classifier_without_bias(hidden):
    head = heads.Classifier(more_heads.last_pool, WIDTH, classes=4, bias=False)
    torch.testing.assert_close(head(hidden), hidden[:, -1] @ head.project.weight.T)
