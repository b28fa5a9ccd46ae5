"""Self-attention without parameters, and the checks of shapes.

Start here. Everything else in `core/` is this file plus parameters, speed and structure.

Axes: B batch, T tokens, E model width, H heads, D head width (E = H * D).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def attend_loop(x: Tensor) -> Tensor:
    """Eq. 1, eq. 2 and eq. 3 as they are written, one number at a time, for x (T, E)."""
    require_shape("x", x, ("tokens", "width"), "pass one sequence at a time")
    outputs = []
    for x_i in x:
        raw = [(x_i * x_j).sum() for x_j in x]  # eq. 1: how related is j to i?
        # Softmax does not change when the same number is taken from every score; taking
        # the largest keeps exp from overflowing.
        largest = max(raw)
        exponentials = [torch.exp(score - largest) for score in raw]
        total = sum(exponentials)
        weights = [exponential / total for exponential in exponentials]  # eq. 2: sum to one
        outputs.append(sum(w_ij * x_j for w_ij, x_j in zip(weights, x, strict=True)))  # eq. 3
    return torch.stack(outputs)  # (T, E)


def attend(x: Tensor) -> Tensor:
    """The same three equations as two matrix products and a softmax, for any batch."""
    raw = x @ x.transpose(-2, -1)  # (B, T, T)  eq. 1
    weights = raw.softmax(dim=-1)  # (B, T, T)  eq. 2, one row for each output
    return weights @ x  # (B, T, E)  eq. 3


def multi_head_loop(
    x: Tensor,
    to_queries: Tensor,
    to_keys: Tensor,
    to_values: Tensor,
    unify: Tensor,
    heads: int,
) -> Tensor:
    """Queries, keys, values (eq. 4), scaling (eq. 9) and heads (eq. 12), one head at a time.

    The four matrices are E x E and act on column vectors, as the equations write them. A head
    owns a slice of the *width*: the published figure slices the time axis instead, which mixes
    up who may be looked at with what is looked for (docs/errata.md, 1).
    """
    require_divisor("heads", heads, "width", x.shape[-1])
    queries = x @ to_queries.T  # (B, T, E)  eq. 4
    keys = x @ to_keys.T  # (B, T, E)
    values = x @ to_values.T  # (B, T, E)
    head_width = x.shape[-1] // heads
    outputs = []
    for head in range(heads):
        own = slice(head * head_width, (head + 1) * head_width)
        q, k, v = queries[..., own], keys[..., own], values[..., own]  # (B, T, D)
        scores = q @ k.transpose(-2, -1) / math.sqrt(head_width)  # (B, T, T)  eq. 6, eq. 9
        outputs.append(scores.softmax(dim=-1) @ v)  # (B, T, D)  eq. 7, eq. 8
    return torch.cat(outputs, dim=-1) @ unify.T  # (B, T, E)  eq. 12


# --- shapes --------------------------------------------------------------------------------
# Broadcasting accepts many unintended shapes, so functions check the shapes of their
# tensors. The checks never read a tensor's values, so they do not wait for a device.


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


def require_sequences(name: str, x: Tensor, shape: Sequence[int | str]) -> None:
    """x must be a batch of sequences in this shape, each of at least one token."""
    require_shape(name, x, shape, f"pass {name}[None] for one sequence")
    if x.shape[1] == 0:
        raise ValueError(
            f"{name}: the shape is {_written(x.shape)}, but a sequence must have at least one "
            f"token: pass one"
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


def require_ids(name: str, x: Tensor, *dtypes: torch.dtype) -> None:
    """x must hold whole numbers: of these types, or of those with which torch looks up rows."""
    if x.dtype not in (dtypes or (torch.int64, torch.int32)):
        raise ValueError(
            f"{name}: the dtype is {x.dtype}, but it must be torch.int64: use {name}.long()"
        )


def require_divisor(name: str, number: int, of: str, whole: int) -> None:
    """`number` must divide `whole`; the message has the nearest number that does."""
    if number < 1 or whole % number:
        divisors = [each for each in range(1, max(whole, 1) + 1) if whole % each == 0]
        nearest = min(divisors, key=lambda each: abs(each - number))
        plain = name.replace("_", " ")
        raise ValueError(
            f"{of} is {whole} and {name} is {number}, but the {plain} must divide the {of}: "
            f"use {nearest} {plain}"
        )


def _written(shape: Sequence[int | str]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
