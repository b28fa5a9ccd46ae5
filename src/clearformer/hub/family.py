"""Family: how one Hugging Face model family maps to ours, in both directions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.config import GenerationDefaults, ModelConfig
from clearformer.hub.hf_config import HFConfig
from clearformer.hub.safetensors_files import Weights
from clearformer.hub.tensor_names import Rename

ToFamilyForm = Callable[
    [ModelConfig, Mapping[str, Tensor]], tuple[ModelConfig, dict[str, Tensor]]
]  # the same model in the form that this family can express


def nothing_to_verify(config: ModelConfig, weights: Weights) -> None:
    """Most families store no tensors beyond the named parameters."""


@dataclass(frozen=True)
class Family:
    """Names, settings and conversions of one family."""

    name: str  # first part of our configs' names
    model_types: tuple[str, ...]
    prefix: str  # of all tensors except the head's; a checkpoint without a head omits it
    renames: Callable[[ModelConfig], tuple[Rename, ...]]
    read_config: Callable[[HFConfig, Collection[str]], ModelConfig]  # config.json, tensor names
    write_config: Callable[[ModelConfig], dict[str, Any]]
    heads: str  # pattern of tensors without the prefix
    buffers: str  # pattern of tensors that are computed, not learned
    unused: str  # pattern of tensors that other heads of this family have
    old_prefix: str | None = None  # another prefix with the same meaning
    old_suffixes: Mapping[str, str] = field(default_factory=dict)  # of older checkpoints
    aliases: Mapping[str, str] = field(default_factory=dict)  # second names of a tensor
    shape: type[ModelConfig] = ModelConfig  # one stack, or encoder and decoder
    merge_files: Callable[[Path, dict[str, Any]], dict[str, Any]] = lambda folder, data: data
    verify: Callable[[ModelConfig, Weights], None] = nothing_to_verify
    notes: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda data: ()
    read_generation: Callable[[HFConfig, ModelConfig], GenerationDefaults] = (
        lambda settings, config: GenerationDefaults()
    )
    write_generation: Callable[[ModelConfig, GenerationDefaults], dict[str, Any]] = (
        lambda config, generation: {}
    )  # for config.json
    generation_config: Callable[[ModelConfig, GenerationDefaults], dict[str, Any] | None] = (
        lambda config, generation: None
    )  # the content of generation_config.json
    to_family_form: ToFamilyForm = lambda config, tensors: (config, dict(tensors))

    def canonical(self, names: Collection[str]) -> dict[str, str]:
        """Tensor names as in `renames`, each with its name in the file; without buffers."""
        older = self.old_prefix
        bare = not any(name.startswith((self.prefix, older or self.prefix)) for name in names)
        names_in_file: dict[str, str] = {}
        for name in names:
            full = self.prefix + name if bare and not re.match(self.heads, name) else name
            if older is not None and full.startswith(older):
                full = self.prefix + full.removeprefix(older)
            for old, new in self.old_suffixes.items():
                if full.endswith(old):
                    full = full.removesuffix(old) + new
            if not re.fullmatch(self.buffers, full):
                if full in names_in_file:
                    raise ValueError(
                        f"{name} and {names_in_file[full]} are two names for one tensor"
                    )
                names_in_file[full] = name
        return names_in_file
