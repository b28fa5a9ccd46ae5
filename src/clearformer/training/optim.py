"""Optimizers and their parameter groups.

Matrices inside the blocks may have their own optimizer (Muon); embeddings, norms, biases and
the output matrix always use AdamW. Weight decay applies to matrices alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from clearformer.config import AdamW, Muon, TrainConfig


@dataclass(frozen=True)
class Groups:
    """The trainable parameters by role, each once, with its name."""

    matrices: list[tuple[str, nn.Parameter]]  # inside the blocks
    outer: list[tuple[str, nn.Parameter]]  # embeddings and the output matrix
    vectors: list[tuple[str, nn.Parameter]]  # norms and biases


def group_parameters(model: nn.Module) -> Groups:
    """Sort the trainable parameters of a model by role."""
    inside = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.ModuleList)
        for parameter in module.parameters()
    }
    groups = Groups([], [], [])
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue  # frozen
        if parameter.dim() < 2:
            groups.vectors.append((name, parameter))
        elif id(parameter) in inside:
            groups.matrices.append((name, parameter))
        else:
            groups.outer.append((name, parameter))
    return groups


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """The optimizers of a model; each parameter group has its base learning rate."""
    groups = group_parameters(model)
    match config.optimizer:
        case AdamW() as adam:
            return [
                _adam(
                    adam,
                    [
                        (groups.matrices, config.learning_rate, adam.weight_decay),
                        (groups.outer, config.learning_rate, adam.weight_decay),
                        (groups.vectors, config.learning_rate, 0.0),
                    ],
                )
            ]
        case Muon() as muon:
            others = [
                (groups.outer, muon.adam_learning_rate, muon.adam.weight_decay),
                (groups.vectors, muon.adam_learning_rate, 0.0),
            ]
            # An adapter may have matrices alone.
            rest = [_adam(muon.adam, others)] if groups.outer or groups.vectors else []
            if not groups.matrices:
                return rest
            matrices = torch.optim.Muon(
                [_named(groups.matrices, config.learning_rate)],
                lr=config.learning_rate,
                momentum=muon.momentum,
                ns_steps=muon.iterations,
                weight_decay=muon.weight_decay,
            )
            return [matrices, *rest]


def set_lr(optimizers: Iterable[Optimizer], factor: float) -> None:
    """Set every learning rate to `factor` times its base."""
    for optimizer in optimizers:
        for each in optimizer.param_groups:
            each["lr"] = each["base_lr"] * factor


def _adam(
    config: AdamW, groups: list[tuple[list[tuple[str, nn.Parameter]], float, float]]
) -> Optimizer:
    return torch.optim.AdamW(
        [{**_named(named, lr), "weight_decay": decay} for named, lr, decay in groups if named],
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def _named(named: list[tuple[str, nn.Parameter]], lr: float) -> dict[str, object]:
    """A parameter group with names, so that its state is saved by name."""
    return {
        "params": [parameter for _, parameter in named],
        "names": [name for name, _ in named],
        "lr": lr,
        "base_lr": lr,
    }
