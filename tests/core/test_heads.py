"""Output heads: logits, losses, pooling, and independence from padding."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer.core import heads
from clearformer.core.heads import IGNORE
from clearformer.extensions import heads as more_heads

WIDTH, VOCABULARY = 6, 11

POOLS = {
    "mean": (heads.mean_pool, lambda real: real.mean(dim=0)),
    "max": (more_heads.max_pool, lambda real: real.max(dim=0).values),
    "mean_max": (
        more_heads.mean_max_pool,
        lambda real: torch.cat([real.mean(dim=0), real.max(dim=0).values]),
    ),
    "first": (heads.first_pool, lambda real: real[0]),
    "last": (more_heads.last_pool, lambda real: real[-1]),
}


@pytest.fixture
def hidden():
    return torch.randn(3, 5, WIDTH)


def test_cross_entropy_returns_sum_and_count_of_valid_targets():
    logits = torch.randn(2, 3, VOCABULARY)
    targets = torch.tensor([[4, IGNORE, 0], [IGNORE, IGNORE, 7]])
    total, count = heads.cross_entropy(logits, targets)
    by_hand = 0.0
    for b, t in ((0, 0), (0, 2), (1, 2)):
        exponentials = [math.exp(logit) for logit in logits[b, t].tolist()]
        by_hand -= math.log(exponentials[targets[b, t]] / sum(exponentials))
    assert total.shape == count.shape == (1,)
    assert total.item() == pytest.approx(by_hand, rel=1e-5)
    assert count.item() == 3


def test_loss_is_zero_without_targets():
    logits = torch.randn(2, 3, VOCABULARY, requires_grad=True)
    total, count = heads.cross_entropy(logits, torch.full((2, 3), IGNORE))
    total.sum().backward()
    assert (total.item(), count.item()) == (0.0, 0)
    assert not logits.grad.any()


def test_half_precision_loss_is_summed_in_float32():
    logits = torch.randn(64, 64, VOCABULARY).bfloat16()
    targets = torch.randint(VOCABULARY, (64, 64))
    total, _ = heads.cross_entropy(logits, targets)
    expected = F.cross_entropy(logits.double().flatten(0, 1), targets.flatten(), reduction="sum")
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("cap", [None, 3.0])
def test_next_token_logits_are_projection_with_optional_soft_cap(hidden, cap):
    project = nn.Linear(WIDTH, VOCABULARY)
    head = heads.NextToken(project, cap)
    raw = 5 * project(hidden)
    with torch.no_grad():
        project.weight.mul_(5)
        project.bias.mul_(5)
    expected = raw if cap is None else cap * torch.tanh(raw / cap)
    torch.testing.assert_close(head(hidden), expected)
    assert cap is None or (head(hidden).abs() <= cap).all()
    targets = torch.randint(VOCABULARY, (3, 5))
    torch.testing.assert_close(head.loss(hidden, targets), heads.cross_entropy(expected, targets))


def test_masked_token_logits_use_transform_and_norm(hidden):
    head = heads.MaskedToken(WIDTH, F.gelu, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))
    expected = head.project(head.norm(F.gelu(head.transform(hidden))))
    torch.testing.assert_close(head(hidden), expected)
    targets = torch.randint(VOCABULARY, (3, 5))
    torch.testing.assert_close(head.loss(hidden, targets), heads.cross_entropy(expected, targets))


@pytest.mark.parametrize("pool", POOLS)
def test_pooling_ignores_padding(hidden, pool):
    function, expected = POOLS[pool]
    spans = [(0, 5), (0, 2), (3, 5)]  # none, right, left padding
    attention_mask = torch.tensor([[start <= t < end for t in range(5)] for start, end in spans])
    by_hand = [expected(row[start:end]) for row, (start, end) in zip(hidden, spans, strict=True)]
    torch.testing.assert_close(function(hidden, attention_mask), torch.stack(by_hand))
    torch.testing.assert_close(function(hidden, None), torch.stack([expected(h) for h in hidden]))
    garbage = hidden.masked_fill(~attention_mask[:, :, None], 1e6)
    torch.testing.assert_close(function(garbage, attention_mask), torch.stack(by_hand))


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_pooling_over_padding_only_is_zero(hidden, pool):
    hidden.requires_grad_()
    attention_mask = torch.tensor([[True] * 5, [False] * 5, [True] * 5])
    pooled = POOLS[pool][0](hidden, attention_mask)
    pooled.sum().backward()
    assert not pooled[1].any()
    assert not hidden.grad[1].any()
    assert hidden.grad.isfinite().all()


def test_classifier_pools_applies_dropout_and_projects(hidden):
    head = heads.Classifier(heads.mean_pool, WIDTH, classes=4, dropout=0.4)
    attention_mask = torch.tensor(
        [[True] * 5, [True, True, False, False, False], [False] * 4 + [True]]
    )
    torch.manual_seed(1)
    given = head.train()(hidden, attention_mask)
    torch.manual_seed(1)
    pooled = heads.mean_pool(hidden, attention_mask)
    torch.testing.assert_close(given, head.project(F.dropout(pooled, 0.4)))
    torch.testing.assert_close(head.eval()(hidden, attention_mask), head.project(pooled))
    classes = torch.tensor([3, 0, IGNORE])
    total, count = head.loss(hidden, classes, attention_mask)
    expected = F.cross_entropy(head.project(pooled)[:2], classes[:2], reduction="sum")
    torch.testing.assert_close(total[0], expected)
    assert count.item() == 2


def test_label_smoothing_applies_only_in_training():
    head = heads.NextToken(nn.Linear(4, 6))
    hidden, targets = torch.randn(2, 3, 4), torch.randint(6, (2, 3))
    targets[0, 0] = IGNORE
    head.smoothing = 0.2

    def expected(smoothing):
        rows, valid = head(hidden).flatten(0, 1).log_softmax(-1), targets.flatten() != IGNORE
        own = rows[valid, targets.flatten()[valid]]
        return -((1 - smoothing) * own + smoothing * rows[valid].mean(-1)).sum()

    torch.testing.assert_close(head.loss(hidden, targets)[0][0], expected(0.2))
    head.eval()
    torch.testing.assert_close(head.loss(hidden, targets)[0][0], expected(0.0))


def test_masked_loss_equals_loss_over_all_logits():
    """Logits are computed at masked positions only; value and gradients are the same."""
    head = heads.MaskedToken(WIDTH, F.gelu, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))
    targets = torch.where(torch.rand(3, 5) < 0.3, torch.randint(VOCABULARY, (3, 5)), IGNORE)

    def outcome(loss):
        hidden = torch.linspace(-1, 1, 90).sin().view(3, 5, WIDTH).requires_grad_()
        head.zero_grad()
        total, count = loss(hidden)
        total.sum().backward()
        return total, count, hidden.grad, [p.grad.clone() for p in head.parameters()]

    full = outcome(lambda hidden: heads.cross_entropy(head(hidden), targets))
    selected = outcome(lambda hidden: head.loss(hidden, targets))
    assert 0 < selected[1].item() < targets.numel()
    torch.testing.assert_close(selected, full)
    seen = []
    head.project.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    head.loss(torch.zeros(3, 5, WIDTH), targets)
    assert seen == [(selected[1].item(), VOCABULARY)]
    nothing, count = head.loss(torch.zeros(3, 5, WIDTH), torch.full((3, 5), IGNORE))
    assert (nothing.item(), count.item()) == (0.0, 0)
