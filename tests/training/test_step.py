"""One training step: accumulation equals the full batch, and NaN or inf never reach the weights."""

import copy

import pytest
import torch

from clearformer.core.heads import IGNORE
from clearformer.core.model import Batch
from clearformer.training.optim import make_optimizers
from clearformer.training.step import NonFiniteError, train_step


@pytest.fixture
def ragged():
    """Eight rows with very different numbers of targets."""
    tokens = torch.randint(20, (8, 12))
    targets = torch.randint(20, (8, 12))
    for row, valid in enumerate((12, 1, 5, 2, 12, 3, 1, 7)):
        targets[row, valid:] = IGNORE
    return Batch(tokens, targets)


def cut(batch, parts):
    return [
        Batch(tokens, targets)
        for tokens, targets in zip(
            batch.tokens.chunk(parts), batch.targets.chunk(parts), strict=True
        )
    ]


def gradients(model, batches, counts, train_config):
    model = copy.deepcopy(model)
    optimizers = make_optimizers(model, train_config)
    outcome = train_step(model.loss, model.parameters(), optimizers, batches, counts, clip=None)
    return outcome, [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_accumulation_equals_full_batch(generator_model, train_config, ragged, parts):
    counts = (ragged.targets != IGNORE).sum()[None]
    whole, expected = gradients(generator_model, [ragged], counts, train_config)
    pieces, found = gradients(generator_model, cut(ragged, parts), counts, train_config)
    assert pieces.loss == pytest.approx(whole.loss, rel=1e-6)
    assert pieces.targets == whole.targets == 43
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-7)


def test_mean_of_means_gives_different_gradient(generator_model, train_config, ragged):
    """The control: dividing each micro-batch by its own count is wrong by a lot."""
    counts = (ragged.targets != IGNORE).sum()[None]
    _, expected = gradients(generator_model, [ragged], counts, train_config)
    model = copy.deepcopy(generator_model)
    for batch in cut(ragged, 8):
        sums, own = model.loss(batch)
        (sums / own / 8).sum().backward()
    wrong = [parameter.grad for parameter in model.parameters()]
    worst = max(float((w - e).norm() / e.norm()) for w, e in zip(wrong, expected, strict=True))
    assert worst > 0.1


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_non_finite_loss_leaves_weights_unchanged(generator_model, train_config, ragged, poison):
    optimizers = make_optimizers(generator_model, train_config)
    before = [parameter.detach().clone() for parameter in generator_model.parameters()]

    def loss(batch):
        sums, counts = generator_model.loss(batch)
        return sums * poison, counts

    with pytest.raises(NonFiniteError, match=r"the loss is (nan|inf), the gradient norm"):
        train_step(
            loss, generator_model.parameters(), optimizers, [ragged], torch.tensor([43]), clip=1.0
        )
    for own, old in zip(generator_model.parameters(), before, strict=True):
        assert own.detach().equal(old)


def test_batch_without_targets_leaves_weights_unchanged(generator_model, train_config, ragged):
    optimizers = make_optimizers(generator_model, train_config)
    before = [parameter.detach().clone() for parameter in generator_model.parameters()]
    empty = Batch(ragged.tokens, torch.full_like(ragged.targets, IGNORE))
    outcome = train_step(
        generator_model.loss,
        generator_model.parameters(),
        optimizers,
        [empty],
        torch.tensor([0]),
        1.0,
    )
    assert (outcome.loss, outcome.targets) == (0.0, 0)
    for own, old in zip(generator_model.parameters(), before, strict=True):
        assert own.detach().equal(old)


def test_clipping_bounds_gradient_norm(generator_model, train_config, ragged):
    optimizers = make_optimizers(generator_model, train_config)
    outcome = train_step(
        generator_model.loss,
        generator_model.parameters(),
        optimizers,
        [ragged],
        torch.tensor([43]),
        clip=1e-3,
    )
    squares = sum(float(p.grad.square().sum()) for p in generator_model.parameters())
    assert outcome.gradient_norm > 1e-3
    assert squares**0.5 == pytest.approx(1e-3, rel=1e-3)
