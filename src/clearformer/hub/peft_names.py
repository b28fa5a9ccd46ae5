"""Matrices that can be adapted, under our names and under those of PEFT.

PEFT adapts the modules of transformers, which are those of a family's table of names; one of our
matrices may be several of theirs. Rows may have another order there (rotary pairs).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.adapters.targets import slots
from clearformer.builder import outline
from clearformer.config import ModelConfig, Sinusoidal
from clearformer.hub.export_family import choose_family
from clearformer.hub.family import Family
from clearformer.hub.tensor_names import TRANSPOSED, their_names

PREFIX = "base_model.model."
CONFIG, WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
MAGNITUDE = "lora_magnitude_vector"


@dataclass(frozen=True, eq=False)
class PeftModule:
    """A module of theirs, and the rows of one of our matrices that it is."""

    name: str  # theirs, without PREFIX
    path: str  # ours
    part: str  # our name of these rows
    rows: range
    order: Tensor  # (rows,), our row at each of theirs, counted from the first
    inputs: int
    transposed: bool  # a Conv1D

    @property
    def parameter(self) -> str:
        """The beginning of our parameters' names."""
        return f"{self.path}.parts.{self.part}"

    @property
    def magnitude(self) -> str:
        return f"{self.path}.magnitude.{self.part}"


def peft_modules(config: ModelConfig) -> tuple[Family, list[PeftModule]]:
    """The family of a model in transformers, and its modules that can be adapted."""
    family, form, _, _ = choose_family(config)
    if isinstance(config.position, Sinusoidal) and form.position != config.position:
        raise ValueError(
            f"{config.name} has sines and cosines in another order than {family.name}, and so the "
            f"columns of its matrices: merge the adapter, and export the model"
        )
    return family, list(_modules(family, config, form))


def _modules(family: Family, config: ModelConfig, form: ModelConfig) -> Iterator[PeftModule]:
    renames = family.renames(form)
    for slot in slots(outline(config)):
        ours = f"{slot.path}.weight"
        names, layout = their_names(renames, ours)
        row_numbers = torch.arange(slot.linear.out_features)
        order = family.to_family_form(config, {ours: row_numbers})[1][ours].long()
        parts = [name for name in slot.rows if name != "qkv"]
        if len(names) == 1:
            parts = [name for name, rows in slot.rows.items() if len(rows) == len(order)]
        for name, part in zip(names, parts, strict=True):
            rows = slot.rows[part]
            yield PeftModule(
                name.removesuffix(".weight"),
                slot.path,
                part,
                rows,
                order[rows.start : rows.stop] - rows.start,
                slot.linear.in_features,
                layout is TRANSPOSED,
            )
