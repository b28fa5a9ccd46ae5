"""Chooses the family for an export by trial: a config is written and read again.

What comes back must describe the same model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from torch import Tensor

from clearformer.builder import outline
from clearformer.config import (
    AnswerSpan,
    Classifier,
    ModelConfig,
    PairClassifier,
    Regressor,
    TokenClassifier,
    to_json,
)
from clearformer.hub.family import Family
from clearformer.hub.hf_config import HFConfig
from clearformer.hub.registry import FAMILIES
from clearformer.hub.tensor_names import their_names

# Fields that do not change the function of a model.
NOT_COMPARED = {"name", "family", "init", "dropout", "cache"}


def choose_family(
    config: ModelConfig, tensors: Mapping[str, Tensor] = MappingProxyType({})
) -> tuple[Family, ModelConfig, dict[str, Tensor], dict[str, Any]]:
    """A family that can express the model; config and tensors in its form; its config.json."""
    config, tensors = in_own_unit(config, tensors)
    families = [family for family in FAMILIES if family.shape is type(config)]
    fits = [Fit(family, *family.to_family_form(config, tensors)) for family in families]
    nearest = min(fits, key=lambda fit: (fit.distance, len(fit.differences)))
    if nearest.differences:
        shown = "; ".join(nearest.differences[:3])
        raise ValueError(
            f"{config.name} has no counterpart among {', '.join(f.name for f in families)}; the "
            f"nearest is {nearest.family.name}, but {shown}: use --to safetensors, which keeps any "
            f"model"
        )
    return nearest.family, nearest.config, nearest.tensors, nearest.settings


def in_own_unit(
    config: ModelConfig, tensors: Mapping[str, Tensor]
) -> tuple[ModelConfig, Mapping[str, Tensor]]:
    """A regression model whose weights include the mean and the standard deviation of its numbers;
    any other model as it is."""
    head = config.head
    if not isinstance(head, Regressor) or (head.mean, head.std) == (0.0, 1.0):
        return config, tensors
    if not head.bias and head.mean:
        raise ValueError(
            f"{config.name} adds {head.mean:g} to its outputs, but its head has no bias: use "
            f"--to safetensors, which keeps any model"
        )
    changed = dict(tensors)
    for name, shift in (("head.project.weight", 0.0), ("head.project.bias", head.mean)):
        if name in changed:
            changed[name] = changed[name] * head.std + shift
    return replace(config, head=replace(head, mean=0.0, std=1.0)), changed


class Fit:
    """The differences after writing a config in a family's format and reading it again."""

    def __init__(self, family: Family, config: ModelConfig, tensors: dict[str, Tensor]) -> None:
        self.family, self.config, self.tensors = family, config, tensors
        self.settings = family.write_config(config)
        renames = family.renames(config)
        names: set[str] = set()
        nameless = []
        for name, _ in outline(config).named_parameters():
            try:
                names.update(their_names(renames, name)[0])
            except KeyError:
                nameless.append(name)
        try:
            again = family.read_config(HFConfig(self.settings, "config.json"), names)
        except ValueError as problem:
            self.distance, self.differences = 2, [str(problem)]
            return
        # Another kind of head is worse than any number of other differences.
        ours, theirs = _normalized(config), _normalized(again)
        self.distance = int(type(theirs.head) is not type(ours.head))
        before, after = to_json(ours), to_json(theirs)
        self.differences = [
            f"its {name} is {_shown(after[name])} and not {_shown(before[name])}"
            for name in compared_fields(config)
            if before[name] != after[name]
        ]
        if nameless and not self.differences:
            self.differences = [f"it has no {nameless[0]}"]


def compared_fields(config: ModelConfig) -> list[str]:
    return [each.name for each in fields(config) if each.name not in NOT_COMPARED]


def _normalized(config: ModelConfig) -> ModelConfig:
    """One form for equivalent configs."""
    head = config.head
    if isinstance(head, PairClassifier):  # the class of a pair is that of one sequence to others
        head = Classifier(classes=head.classes, pool=head.pool, names=head.names, bias=head.bias)
    if isinstance(head, AnswerSpan):
        head = AnswerSpan()
    if isinstance(head, Classifier | TokenClassifier) and head.names is None:
        head = replace(head, names=tuple(f"LABEL_{i}" for i in range(head.classes)))
    return replace(config, key_heads=config.key_heads or config.heads, head=head)


def _shown(value: Any) -> str:
    """A value of a config for a message."""
    match value:
        case list():
            return ", ".join(map(_shown, value))
        case {"kind": kind, **inner}:
            numbers = ", ".join(f"{key}={_shown(each)}" for key, each in inner.items())
            return f"{kind}({numbers})" if numbers else str(kind)
        case _:
            return str(value)
