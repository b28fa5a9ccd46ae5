"""Which parameter is moved by which rule.

Matrices of the blocks are the bulk of a transformer and like a rule of their own (Muon);
embeddings, norms, biases and the output matrix always go with AdamW. Weight decay falls on
matrices alone: pulling a norm's scale or a bias towards zero has no reason behind it.
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
    """The parameters that learn, by the role they play, each with its name, each once."""

    matrices: list[tuple[str, nn.Parameter]]  # inside the blocks
    outer: list[tuple[str, nn.Parameter]]  # embeddings and the output matrix
    vectors: list[tuple[str, nn.Parameter]]  # norms and biases


def group(model: nn.Module) -> Groups:
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


def optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """The rules that move the model's parameters, each group with its base rate."""
    groups = group(model)
    match config.optimizer:
        case AdamW() as adam:
            return [
                _adam(
                    adam,
                    [
                        (groups.matrices, config.lr, adam.weight_decay),
                        (groups.outer, config.lr, adam.weight_decay),
                        (groups.vectors, config.lr, 0.0),
                    ],
                )
            ]
        case Muon() as muon:
            rest = _adam(
                muon.adam,
                [
                    (groups.outer, muon.adam_lr, muon.adam.weight_decay),
                    (groups.vectors, muon.adam_lr, 0.0),
                ],
            )
            if not groups.matrices:
                return [rest]
            matrices = torch.optim.Muon(
                [_named(groups.matrices, config.lr)],
                lr=config.lr,
                momentum=muon.momentum,
                ns_steps=muon.iterations,
                weight_decay=muon.weight_decay,
            )
            return [matrices, rest]


def set_rate(rules: Iterable[Optimizer], factor: float) -> None:
    for rule in rules:
        for each in rule.param_groups:
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
    """Parameters with their names, so that their state can be saved by name."""
    return {
        "params": [parameter for _, parameter in named],
        "names": [name for name, _ in named],
        "lr": lr,
        "base_lr": lr,
    }
