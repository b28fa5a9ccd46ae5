"""Which family's form fits a model: found by trying. Settings are written and read again, and
what comes back must be the same model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from torch import Tensor

from clearformer.build import outline
from clearformer.config import (
    Classifier,
    ModelConfig,
    NextToken,
    Seq2SeqConfig,
    TokenClassifier,
    to_json,
)
from clearformer.hub import tensor_names
from clearformer.hub.family import Family
from clearformer.hub.hf_config import Settings
from clearformer.hub.registry import FAMILIES

# What says nothing about the function a model computes.
BESIDE = {"name", "family", "init", "dropout", "past", "sides"}


def fitting(
    config: ModelConfig, tensors: Mapping[str, Tensor] = MappingProxyType({})
) -> tuple[Family, ModelConfig, dict[str, Tensor], dict[str, Any]]:
    """The family that can express a model, config and tensors in its form, and its settings."""
    families = [family for family in FAMILIES if family.shape is type(config)]
    tried = [Fit(family, *family.reform(config, tensors)) for family in families]
    nearest = min(tried, key=lambda fit: (fit.far, len(fit.differences)))
    if nearest.differences:
        shown = "; ".join(nearest.differences[:3])
        raise ValueError(
            f"{config.name} has no counterpart among {', '.join(f.name for f in families)}; the "
            f"nearest is {nearest.family.name}, but {shown}: use --to safetensors, which keeps any "
            f"model"
        )
    return nearest.family, nearest.config, nearest.tensors, nearest.settings


class Fit:
    """What would be lost by writing a config as a family does and reading it again."""

    def __init__(self, family: Family, config: ModelConfig, tensors: dict[str, Tensor]) -> None:
        self.family, self.config, self.tensors = family, config, tensors
        self.settings = family.write(config)
        rows = family.rows(config)
        there: set[str] = set()
        nameless = []
        for name, _ in outline(config).named_parameters():
            try:
                there.update(tensor_names.find(rows, name)[0])
            except KeyError:
                nameless.append(name)
        try:
            again = family.read(Settings(self.settings, "config.json"), there)
        except ValueError as problem:
            self.far, self.differences = 2, [str(problem)]
            return
        # Another kind of head is never near, however few numbers differ.
        self.far = int(type(again.head) is not type(config.head))
        before, after = to_json(_plain(config)), to_json(_plain(again))
        self.differences = [
            f"its {name} is {_shown(after[name])} and not {_shown(before[name])}"
            for name in fields_of(config)
            if before[name] != after[name]
        ]
        if nameless and not self.differences:
            self.differences = [f"it has no {nameless[0]}"]


def fields_of(config: ModelConfig) -> list[str]:
    return [each.name for each in fields(config) if each.name not in BESIDE]


def _plain(config: ModelConfig) -> ModelConfig:
    """Two ways of writing one thing, as one."""
    head = config.head
    if isinstance(head, Classifier | TokenClassifier) and head.names is None:
        head = replace(head, names=tuple(f"LABEL_{i}" for i in range(head.classes)))
    if isinstance(head, NextToken):  # what ends a text is no part of the function
        head = replace(head, ends=None)
    if isinstance(config, Seq2SeqConfig):
        config = replace(config, rules=config.target_rules)
    return replace(config, key_heads=config.key_heads or config.heads, head=head)


def _shown(value: Any) -> str:
    """A value of a config in a few words."""
    match value:
        case list():
            return ", ".join(map(_shown, value))
        case {"kind": kind, **inner}:
            numbers = ", ".join(f"{key}={_shown(each)}" for key, each in inner.items())
            return f"{kind}({numbers})" if numbers else str(kind)
        case _:
            return str(value)
