"""Optimizers: every parameter is updated by exactly one, and only matrices decay."""

from dataclasses import replace

import pytest
import torch

from clearformer.adapters.attach import attach
from clearformer.config import AdamW, LoRA, Muon
from clearformer.training.optim import group_parameters, make_optimizers, set_lr


def moved(optimizers):
    return [
        id(p) for optimizer in optimizers for each in optimizer.param_groups for p in each["params"]
    ]


@pytest.mark.parametrize("optimizer", [AdamW(), Muon()])
def test_every_parameter_has_one_optimizer(modern_model, train_config, optimizer):
    optimizers = make_optimizers(modern_model, replace(train_config, optimizer=optimizer))
    assert sorted(moved(optimizers)) == sorted(id(p) for p in modern_model.parameters())


def test_group_parameters_by_role(generator_model):
    groups = group_parameters(generator_model)
    assert {name for name, _ in groups.outer} == {
        "embedding.token.weight",
        "embedding.position.table.weight",
        "head.project.weight",
    }
    assert all(name.startswith("stack.blocks.") for name, _ in groups.matrices)
    assert all(parameter.dim() == 1 for _, parameter in groups.vectors)


def test_weight_decay_applies_only_to_matrices(generator_model, train_config):
    (optimizer,) = make_optimizers(generator_model, train_config)
    for each in optimizer.param_groups:
        for parameter in each["params"]:
            assert each["weight_decay"] == (0.1 if parameter.dim() == 2 else 0.0)


def test_muon_updates_block_matrices(generator_model, train_config):
    config = replace(train_config, learning_rate=0.02, optimizer=Muon(adam_learning_rate=0.003))
    muon, adam = make_optimizers(generator_model, config)
    assert isinstance(muon, torch.optim.Muon)
    assert {id(p) for p in muon.param_groups[0]["params"]} == {
        id(parameter) for _, parameter in group_parameters(generator_model).matrices
    }
    set_lr([muon, adam], 0.5)
    assert muon.param_groups[0]["lr"] == 0.01
    assert {each["lr"] for each in adam.param_groups} == {0.0015}


@pytest.mark.parametrize("optimizer", [AdamW(), Muon()])
def test_frozen_parameters_are_not_optimized(generator_model, train_config, optimizer):
    generator_model.stack.requires_grad_(False)
    config = replace(train_config, optimizer=optimizer)
    moved = {
        name
        for optimizer in make_optimizers(generator_model, config)
        for group in optimizer.param_groups
        for name in group["names"]
    }
    assert moved == {n for n, _ in generator_model.named_parameters() if not n.startswith("stack")}


def test_muon_alone_where_only_matrices_learn(generator_model, train_config):
    attach(generator_model, LoRA(rank=2), seed=0)
    config = replace(train_config, optimizer=Muon())
    (muon,) = make_optimizers(generator_model, config)
    assert isinstance(muon, torch.optim.Muon)
