"""Shapes that must fit, checked before they can give a wrong number.

Broadcasting accepts many shapes that nobody meant. Code that takes tensors states the shapes it
takes with these functions. They compare sizes and dtypes only: they never read a tensor's values,
so they do not wait for a device, and torch.compile resolves them while it traces.

Axes: those of whoever asks.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def require_shape(name: str, x: Tensor, shape: Sequence[int | str], advice: str) -> None:
    """x must have this shape: a number is the size of an axis, a word names one of any size."""
    fits = x.dim() == len(shape) and all(
        isinstance(wanted, str) or size == wanted
        for size, wanted in zip(x.shape, shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{name}: the shape is {_written(x.shape)}, but it must be {_written(shape)}: {advice}"
        )


def require_broadcast(name: str, x: Tensor, shape: Sequence[int], advice: str) -> None:
    """x must broadcast to this shape, and not beyond it."""
    last = shape[len(shape) - x.dim() :]
    fits = x.dim() <= len(shape) and all(
        size in (1, wanted) for size, wanted in zip(x.shape, last, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{name}: the shape is {_written(x.shape)}, but it must broadcast to "
            f"{_written(shape)}: {advice}"
        )


def require_ids(name: str, x: Tensor) -> None:
    """x must hold whole numbers, of a type with which torch looks up rows of a table."""
    if x.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"{name}: the dtype is {x.dtype}, but it must be torch.int64: use {name}.long()"
        )


def require_made_for(what: str, **settings: tuple[object, object]) -> None:
    """Each setting: what something was made with must be what is needed now."""
    for name, (has, needs) in settings.items():
        if has != needs:
            raise ValueError(
                f"{what} was made with {name}={has}, but this step needs {needs}: "
                f"make it with {name}={needs}"
            )


def _written(shape: Sequence[int | str]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
