"""Conversion of their tensors to ours: first a plan that checks names and shapes, then the data.

A tensor with our layout stays a view of the file; others are copied once and their pages released.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from clearformer.builder import outline
from clearformer.config import ModelConfig
from clearformer.hub.family import Family
from clearformer.hub.safetensors_files import Weights, printable
from clearformer.hub.tensor_names import Layout, Rename, their_names
from clearformer.runs import state

# Our name: the names in the file, and their layout in our tensor.
Plan = dict[str, tuple[list[str], Layout]]


def plan_conversion(
    family: Family, config: ModelConfig, weights: Weights, present: dict[str, str]
) -> tuple[Plan, list[str]]:
    """Check every name and shape against the config, without reading data; returns notes too."""
    model = outline(config)
    renames = family.renames(config)
    for alias, name in family.aliases.items():
        if alias in present and name not in present:
            present[name] = present.pop(alias)
    plan: Plan = {}
    used: set[str] = set()
    missing: list[str] = []
    for ours, parameter in model.named_parameters():
        theirs, layout = their_names(renames, ours)
        used.update(theirs)
        missing += [name for name in theirs if name not in present]
        if missing:
            continue
        shapes = layout.shapes(tuple(parameter.shape), config)
        for name, expected in zip(theirs, shapes, strict=True):
            shape = weights.shape(present[name])
            if shape != expected:
                raise ValueError(
                    f"{present[name]} has shape {shape}, but its config makes it {expected}"
                )
        plan[ours] = [present[name] for name in theirs], layout
    if missing:
        raise ValueError(f"it lacks the tensor{'s' * (len(missing) > 1)} {first_few(missing)}")
    for second, first in (*_tied(model, renames), *family.aliases.items()):
        if second in present:
            used.add(second)
            _require_equal(weights, present[second], present[first])
    extra = sorted(present.keys() - used)
    unknown = [name for name in extra if not re.fullmatch(family.unused, name)]
    if unknown:
        raise ValueError(
            f"it has the tensor{'s' * (len(unknown) > 1)} "
            f"{first_few([present[n] for n in unknown])}, "
            f"which its config does not account for"
        )
    return plan, [f"not used: {first_few(extra)}"] if extra else []


def _tied(model: nn.Module, renames: Sequence[Rename]) -> Iterator[tuple[str, str]]:
    """Their names of tied tensors: the second and the first of each pair."""
    for second, first in state.tied(model).items():
        yield their_names(renames, second)[0][0], their_names(renames, first)[0][0]


def _require_equal(weights: Weights, second: str, first: str) -> None:
    # Shapes first: an empty tensor may claim any shape. In float32: dtypes may differ.
    same_shape = weights.shape(second) == weights.shape(first)
    one, other = (to_float32(name, weights.tensor(name)) for name in (second, first))
    if not same_shape or not one.equal(other):
        raise ValueError(
            f"{second} and {first} are one tensor by its config, but they differ in the file"
        )
    weights.release(second)


def convert(plan: Plan, weights: Weights) -> tuple[dict[str, Tensor], list[str]]:
    """Read the data as float32 under our names; returns notes too."""
    tensors, notes, dtypes = {}, [], set()
    not_finite = rounded = 0
    for ours, (theirs, layout) in plan.items():
        parts = [weights.tensor(name) for name in theirs]
        dtypes |= {part.dtype for part in parts}
        plain = [to_float32(name, part) for name, part in zip(theirs, parts, strict=True)]
        rounded += sum(_rounded(*pair) for pair in zip(parts, plain, strict=True))
        joined = layout.join(plain)
        if joined.data_ptr() != parts[0].data_ptr():
            for name in theirs:
                weights.release(name)
        # A sum is fast, and not finite if any term is not.
        if not joined.sum().isfinite():
            not_finite += int((~joined.isfinite()).sum())
        tensors[ours] = joined
    if not_finite:
        notes.append(f"{not_finite:,} weights are not finite: the checkpoint is damaged")
    other_dtypes = dtypes - {torch.float32}
    if other_dtypes:
        named = ", ".join(sorted(str(each).removeprefix("torch.") for each in other_dtypes))
        lost = f"; {rounded:,} of them were rounded" if rounded else ""
        notes.append(f"weights of {named} are now float32{lost}")
    return tensors, notes


def _rounded(before: Tensor, after: Tensor) -> int:
    """How many numbers change in float32: only float64 has more precision."""
    if before.dtype != torch.float64:
        return 0
    return int((after.double() != before).logical_and(before == before).sum())


def to_float32(name: str, tensor: Tensor) -> Tensor:
    """As float32, which represents every smaller type exactly."""
    if not tensor.dtype.is_floating_point:
        raise ValueError(f"{name} is of {tensor.dtype}, but weights are floating-point numbers")
    return tensor.to(torch.float32)


def first_few(names: Sequence[str]) -> str:
    first = ", ".join(map(printable, names[:3]))
    return f"{first} and {len(names) - 3} more" if len(names) > 3 else first
