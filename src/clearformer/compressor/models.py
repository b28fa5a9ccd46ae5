"""Models for compression: opened from a path or built from a preset, and identified by a hash."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.builder import build
from clearformer.compressor.container import IDENTITY
from clearformer.config import GenerationDefaults, to_json
from clearformer.families import preset
from clearformer.generate.language_model import LanguageModel
from clearformer.inference.int8 import int8_tensors
from clearformer.model import Model, load
from clearformer.text import Bytes

ModelSource = Model | str | os.PathLike[str]


def opened(source: ModelSource, seed: int | None) -> tuple[LanguageModel, str]:
    """The language model, and a name by which a decoder may find it.

    With a seed, `source` is a preset, and the weights are its initial ones with tokens of bytes.
    """
    if seed is not None:
        return _built(source, seed)
    model = source if isinstance(source, Model) else load(source)
    model.config.require_verb("generate", model.name)
    module: Any = model.module
    defaults = model.run_config.generation
    return LanguageModel(module, model.config, defaults, model.tokenizer), model.name


def _built(source: ModelSource, seed: int) -> tuple[LanguageModel, str]:
    if not isinstance(source, str):
        raise ValueError("`from_scratch` needs a preset as `model`, such as modern-tiny")
    config: Any = preset(source)
    config.require_verb("generate", source)
    config = replace(config, vocabulary=Bytes().size)
    module: Any = build(config, seed)
    return LanguageModel(module.eval(), config, GenerationDefaults(), Bytes()), source


def model_hash(model: LanguageModel) -> str:
    """Hash of all weights, with their names and types, and of the config."""
    digest = hashlib.sha256(json.dumps(to_json(model.config), sort_keys=True).encode())
    tensors = int8_tensors(model.module)
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:IDENTITY]


def weights_size(module: nn.Module) -> tuple[int, int]:
    """Bytes of a model's parameters as they are, and with matrices in int8."""
    now = in_int8 = 0
    for tensor in _parameters(module):
        now += _bytes(tensor)
        # A row of a matrix has a scale in float32; vectors stay as they are.
        small = tensor.dim() == 2 and tensor.is_floating_point()
        in_int8 += tensor.numel() + 4 * len(tensor) if small else _bytes(tensor)
    return now, in_int8


def _parameters(module: nn.Module) -> Iterable[Tensor]:
    """All parameters, tied ones once; matrices in int8 are none for torch, with their scales."""
    quantized = int8_tensors(module)
    if any(tensor.dtype == torch.int8 for tensor in quantized.values()):
        return quantized.values()
    return module.parameters()


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
