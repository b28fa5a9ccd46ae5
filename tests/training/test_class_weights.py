"""Class weights: every class counts the same in the loss."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearformer.core.heads import IGNORE, Classifier, mean_pool
from clearformer.training.class_weights import WeightedCrossEntropy, balanced


def test_balanced_weights_are_those_of_scikit_learn():
    labels = np.array([0] * 6 + [1] * 3 + [2])
    found = balanced(labels, 3)
    utils = pytest.importorskip("sklearn.utils.class_weight")
    expected = utils.compute_class_weight("balanced", classes=np.arange(3), y=labels)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32))
    assert float(found[labels].mean()) == pytest.approx(1.0)
    assert balanced(np.array([0, 0, 2]), 3)[1] > 0  # a class without rows


def test_the_loss_is_weighted_and_the_count_is_not():
    head = Classifier(mean_pool, 8, 3)
    hidden = torch.randn(4, 5, 8)
    targets = torch.tensor([0, 1, 2, IGNORE])
    plain, _ = head.loss(hidden, targets)
    weights = torch.tensor([0.5, 1.0, 4.0])
    head.criterion = WeightedCrossEntropy(weights)
    total, count = head.loss(hidden, targets)
    each = F.cross_entropy(head(hidden)[:3], targets[:3], reduction="none")
    torch.testing.assert_close(total, (each * weights).sum()[None])
    assert count.tolist() == [3]
    assert not torch.allclose(total, plain)
    assert set(head.state_dict()) == {"project.weight", "project.bias"}  # no part of a checkpoint


def test_equal_weights_change_nothing():
    head = Classifier(mean_pool, 8, 3)
    head.smoothing = 0.1
    hidden, targets = torch.randn(4, 5, 8), torch.tensor([0, 1, 2, 1])
    plain, _ = head.loss(hidden, targets)
    head.criterion = WeightedCrossEntropy(torch.ones(3))
    torch.testing.assert_close(head.loss(hidden, targets)[0], plain)


def test_smoothing_is_not_weighted_by_other_classes():
    head = Classifier(mean_pool, 8, 3)
    head.smoothing = 0.1
    hidden, targets = torch.randn(4, 5, 8), torch.tensor([0, 1, 0, 1])
    plain, _ = head.loss(hidden, targets)
    weights = torch.tensor([1.0, 1.0, 500.0])  # of a class that these rows do not have, too
    head.criterion = WeightedCrossEntropy(weights)
    torch.testing.assert_close(head.loss(hidden, targets)[0], plain)
