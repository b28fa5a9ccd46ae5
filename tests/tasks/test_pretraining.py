"""BERT pretraining has a second objective, next-sentence prediction."""

import math
from dataclasses import replace

import pytest
import torch

from clearformer.builder import build
from clearformer.config import RunConfig
from clearformer.families import bert
from clearformer.families.recipes import recipe
from clearformer.tasks.registry import task_of


def small(size):
    return replace(bert(size), length=16, layers=1, width=16, heads=2, hidden=32, vocabulary=50)


def test_next_sentence_is_second_objective():
    for size, objectives in (("tiny", 2), ("tiny-masked", 1)):
        model = small(size)
        data, train = recipe(model)
        config = RunConfig(model=model, data=data, train=train)
        batch, caches = task_of(model).example(config, 4, (1, 1))
        assert caches is None
        sums, counts = build(model).loss(batch)
        assert len(sums) == objectives
        assert torch.isfinite(sums).all()
        assert counts[-1] == (4 if objectives == 2 else round(4 * 16 * data.masking.rate - 0.5))


def test_chance_loss_includes_next_sentence():
    pretraining, masked = task_of(small("tiny")), task_of(small("tiny-masked"))
    assert pretraining.chance(50) == pytest.approx(masked.chance(50) + math.log(2))
    assert pretraining.metric == masked.metric == "masked_loss"
