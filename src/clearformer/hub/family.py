"""What the hub knows of one family: its names, and its settings in both directions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.config import ModelConfig
from clearformer.hub.hf_config import Settings
from clearformer.hub.safetensors_files import Weights
from clearformer.hub.tensor_names import Row

Reform = Callable[
    [ModelConfig, Mapping[str, Tensor]], tuple[ModelConfig, dict[str, Tensor]]
]  # the same model, as this family writes it


def nothing_to_verify(config: ModelConfig, weights: Weights) -> None:
    """All tensors of a file have names in the rows, or are computed in one way only."""


@dataclass(frozen=True)
class Family:
    """One way of writing a model down."""

    name: str  # how our configs of this family begin
    model_types: tuple[str, ...]
    prefix: str  # of every tensor but the head's; a checkpoint without a head leaves it out
    rows: Callable[[ModelConfig], tuple[Row, ...]]
    read: Callable[[Settings, Collection[str]], ModelConfig]  # settings, tensors that are there
    write: Callable[[ModelConfig], dict[str, Any]]
    heads: str  # pattern of tensors that stand without the prefix
    buffers: str  # pattern of tensors that are computed and not learned
    unused: str  # pattern of tensors that other heads of this family have
    older_prefix: str | None = None  # another that means the same
    renames: Mapping[str, str] = field(default_factory=dict)  # endings of older checkpoints
    aliases: Mapping[str, str] = field(default_factory=dict)  # second names of one tensor
    shape: type[ModelConfig] = ModelConfig  # one stack, or two
    gather: Callable[[Path, dict[str, Any]], dict[str, Any]] = lambda folder, data: data
    verify: Callable[[ModelConfig, Weights], None] = nothing_to_verify
    notes: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda data: ()
    generation: Callable[[ModelConfig], dict[str, Any] | None] = lambda config: None
    reform: Reform = lambda config, tensors: (config, dict(tensors))

    def canonical(self, names: Collection[str]) -> dict[str, str]:
        """The names as the rows have them, each with the one in the file; buffers are gone."""
        older = self.older_prefix
        bare = not any(name.startswith((self.prefix, older or self.prefix)) for name in names)
        found: dict[str, str] = {}
        for name in names:
            full = self.prefix + name if bare and not re.match(self.heads, name) else name
            if older is not None and full.startswith(older):
                full = self.prefix + full.removeprefix(older)
            for old, new in self.renames.items():
                if full.endswith(old):
                    full = full.removesuffix(old) + new
            if not re.fullmatch(self.buffers, full):
                if full in found:
                    raise ValueError(f"{name} and {found[full]} are two names for one tensor")
                found[full] = name
        return found
