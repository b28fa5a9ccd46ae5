"""Copies of a model to experiment on: in double precision, with noise in their weights.

Zero-initialised projections and equal rows hide bugs, so parameters are filled with noise. The
model itself is never touched.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

MAX_PARAMETERS = 300_000_000
LARGE = 30_000_000  # above this a copy with fewer layers is looked at, where the config allows
LAYER_SETTINGS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers",
                  "n_layers", "num_decoder_layers")  # fmt: skip


def reduced(model: nn.Module) -> tuple[nn.Module, str | None]:
    """A large model with two layers and a small vocabulary, built anew from its config."""
    config: Any = getattr(model, "config", None)
    count = sum(each.numel() for each in model.parameters())
    if count <= LARGE or not hasattr(config, "to_dict"):
        return model, None
    small = copy.deepcopy(config)
    changed = {name: 2 for name in LAYER_SETTINGS if isinstance(getattr(small, name, None), int)}
    changed |= {"vocab_size": 512} if isinstance(getattr(small, "vocab_size", None), int) else {}
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        if isinstance(getattr(small, name, None), int):
            changed[name] = min(getattr(small, name), 4)
    if isinstance(getattr(small, "layer_types", None), list):
        small.layer_types = small.layer_types[:2]
    try:
        for name, value in changed.items():
            setattr(small, name, value)
        made: nn.Module = type(model)(small)
    except Exception:
        return model, None
    return made, f"{count:,} parameters: a copy with two layers and new weights is looked at"


def working_copy(model: nn.Module) -> nn.Module:
    """A copy on the CPU; ValueError if it cannot be copied."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(each.is_meta for each in tensors):
        raise ValueError(
            "the model is on the meta device and has no weights: build it on the CPU first"
        )
    count = sum(each.numel() for each in model.parameters())
    if count > MAX_PARAMETERS:
        raise ValueError(
            f"the model has {count:,} parameters, but at most {MAX_PARAMETERS:,} are checked: "
            f"pass a smaller one of the same class, since a bug does not depend on the size"
        )
    try:
        # Copying deeply keeps shared parameters shared.
        made = copy.deepcopy(model)
    except Exception as problem:
        raise ValueError(f"the model cannot be copied with copy.deepcopy: {problem}") from None
    return made.to("cpu").requires_grad_(True) if _all_float(made) else made.to("cpu")


def _all_float(model: nn.Module) -> bool:
    return all(each.is_floating_point() for each in model.parameters())


def add_noise(model: nn.Module, seed: int) -> nn.Module:
    """Fill the parameters of a copy with noise, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                _noise(parameter, generator)
    return model


def _noise(parameter: Tensor, generator: torch.Generator) -> None:
    drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    spread = float(parameter.double().std()) if parameter.numel() > 1 else 0.0
    if parameter.dim() >= 2:
        # Initialisations of 0.02 make every score 0 and every weight 1/T.
        wanted = 1 / math.sqrt(parameter.shape[-1])
        if spread < 0.7 * wanted:
            parameter.copy_(drawn * wanted + parameter.double().mean())
            return
        parameter.add_((0.05 * spread * drawn).to(parameter.dtype))
    else:
        parameter.add_((0.1 * max(spread, 0.5) * drawn).to(parameter.dtype))


@contextmanager
def randomness(seed: int) -> Iterator[None]:
    """Draw from this seed inside, and leave torch's and Python's generators as they were."""
    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Tensors that a model creates in its forward pass have this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def no_fast_path() -> Iterator[None]:
    """torch's encoder layers in their plain form: the fused one repacks padded batches."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
