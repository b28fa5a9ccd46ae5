"""Their tensors as ours: first a plan, in which every name and shape is checked, then the numbers.

What lies in a file as it does with us stays a view of that file; the rest is copied once, and
its pages are let go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from clearformer.build import outline
from clearformer.config import ModelConfig
from clearformer.hub import tensor_names
from clearformer.hub.family import Family
from clearformer.hub.safetensors_files import Weights, printable
from clearformer.runs import state

Plan = dict[
    str, tuple[list[str], tensor_names.Layout]
]  # our name: names in the file, and how they lie


def make_plan(
    family: Family, config: ModelConfig, weights: Weights, present: dict[str, str]
) -> tuple[Plan, list[str]]:
    """Which tensors become which; every name and shape is checked, and nothing is read."""
    model = outline(config)
    rows = family.rows(config)
    for alias, name in family.aliases.items():
        if alias in present and name not in present:
            present[name] = present.pop(alias)
    plan: Plan = {}
    used: set[str] = set()
    missing: list[str] = []
    for ours, parameter in model.named_parameters():
        theirs, layout = tensor_names.find(rows, ours)
        used.update(theirs)
        missing += [name for name in theirs if name not in present]
        if missing:
            continue
        shapes = layout.shapes(tuple(parameter.shape), config)
        for name, wanted in zip(theirs, shapes, strict=True):
            found = weights.shape(present[name])
            if found != wanted:
                raise ValueError(
                    f"{present[name]} has shape {found}, but its config.json makes it {wanted}"
                )
        plan[ours] = [present[name] for name in theirs], layout
    if missing:
        raise ValueError(f"it lacks the tensor{'s' * (len(missing) > 1)} {few(missing)}")
    for second, first in (*_shared(model, rows), *family.aliases.items()):
        if second in present:
            used.add(second)
            _require_equal(weights, present[second], present[first])
    extra = sorted(present.keys() - used)
    unknown = [name for name in extra if not re.fullmatch(family.unused, name)]
    if unknown:
        raise ValueError(
            f"it has the tensor{'s' * (len(unknown) > 1)} {few([present[n] for n in unknown])}, "
            f"which its config.json does not account for"
        )
    return plan, [f"not used: {few(extra)}"] if extra else []


def _shared(model: nn.Module, rows: Sequence[tensor_names.Row]) -> Iterator[tuple[str, str]]:
    """Their second names of tensors that we share, each with the first."""
    for second, first in state.tied(model).items():
        yield tensor_names.find(rows, second)[0][0], tensor_names.find(rows, first)[0][0]


def _require_equal(weights: Weights, second: str, first: str) -> None:
    # Shapes first: of an empty tensor a header may tell any. In float32: types may differ.
    alike = weights.shape(second) == weights.shape(first)
    if not alike or not _floats_of(weights, second).equal(_floats_of(weights, first)):
        raise ValueError(
            f"{second} and {first} are one tensor by its config.json, but they differ in the file"
        )
    weights.release(second)


def _floats_of(weights: Weights, name: str) -> Tensor:
    return floats(name, weights.tensor(name))


def convert(plan: Plan, weights: Weights) -> tuple[dict[str, Tensor], list[str]]:
    """Read the numbers: what lies as ours does stays a view of the file."""
    tensors, notes, kinds = {}, [], set()
    not_finite = 0
    rounded = 0
    for ours, (theirs, layout) in plan.items():
        parts = [weights.tensor(name) for name in theirs]
        kinds |= {part.dtype for part in parts}
        plain = [floats(name, part) for name, part in zip(theirs, parts, strict=True)]
        rounded += sum(_rounded(*pair) for pair in zip(parts, plain, strict=True))
        joined = layout.join(plain)
        if joined.data_ptr() != parts[0].data_ptr():
            for name in theirs:
                weights.release(name)
        # A sum is quick, and not finite if any of its terms is not.
        if not joined.sum().isfinite():
            not_finite += int((~joined.isfinite()).sum())
        tensors[ours] = joined
    if not_finite:
        notes.append(f"{not_finite:,} weights are not finite: the checkpoint is damaged")
    others = kinds - {torch.float32}
    if others:
        named = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in others))
        lost = f"; {rounded:,} of them were rounded" if rounded else ""
        notes.append(f"weights of {named} are now float32{lost}")
    return tensors, notes


def _rounded(before: Tensor, after: Tensor) -> int:
    """How many numbers are others in float32: only float64 holds more."""
    if before.dtype != torch.float64:
        return 0
    return int((after.double() != before).logical_and(before == before).sum())


def floats(name: str, tensor: Tensor) -> Tensor:
    """As float32, in which every smaller type is exact; a file may mix them."""
    if not tensor.dtype.is_floating_point:
        raise ValueError(f"{name} is of {tensor.dtype}, but weights are floating-point numbers")
    return tensor.to(torch.float32)


def few(names: Sequence[str]) -> str:
    first = ", ".join(map(printable, names[:3]))
    return f"{first} and {len(names) - 3} more" if len(names) > 3 else first
