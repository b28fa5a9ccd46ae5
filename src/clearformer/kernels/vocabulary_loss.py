"""The loss over a vocabulary in chunks: the same as `core.heads.at_once` in less memory.

With fifty thousand words the logits of a batch are the largest tensors of a training step, three
times over (logits, their logarithms, their gradient). `in_chunks` computes the loss from a few
rows at a time, gradient included, and keeps a gradient as wide as the model instead of one as wide
as the vocabulary.

Axes: R rows (the B*T tokens of a batch), C rows of a chunk, E model width, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clearformer.core.heads import (
    IGNORE,
    SumAndCount,
    at_once,
    capped,
    require_targets,
    targets_explained,
    with_target,
)

CHUNK = 2**24  # logits in memory at a time, 64 MB


def summed_in_chunks(
    project: nn.Linear, rows: Tensor, targets: Tensor, smoothing: float, cap: float | None
) -> Tensor:
    """The sum (1,), with its gradient ready."""
    size = max(1, CHUNK // project.out_features)
    apply: Callable[..., Tensor] = _InChunks.apply
    return apply(rows, project.weight, project.bias, targets, smoothing, cap, size)


def in_chunks(
    project: nn.Linear,
    rows: Tensor,
    targets: Tensor,
    smoothing: float,
    cap: float | None,
    summed: Callable[..., Tensor] = summed_in_chunks,
) -> SumAndCount:
    """The same, some rows at a time; what fits into one chunk is left to `at_once`."""
    require_targets(targets, rows.shape[:-1])
    size = max(1, CHUNK // project.out_features)
    if len(rows) <= size:
        return at_once(project, rows, targets, smoothing, cap)
    if not torch.is_grad_enabled():
        sums, counts = zip(
            *(
                at_once(project, some, own, smoothing, cap)
                for some, own in zip(rows.split(size), targets.split(size), strict=True)
            ),
            strict=True,
        )
        return torch.stack(sums).sum(0), torch.stack(counts).sum(0)
    return summed(project, rows, targets, smoothing, cap), (targets != IGNORE).sum()[None]


def with_target_padded(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """`with_target`, and rows without a target up to the next multiple of 64; a few stay as few.

    Logits are large, and another number of tokens is masked in every step: what one step frees
    would never quite fit the next, and the process would grow for as long as it runs.
    """
    rows, own = with_target(hidden, targets)
    spare = -len(rows) % 64 if len(rows) > 64 else 0
    return F.pad(rows, (0, 0, 0, spare)), F.pad(own, (0, spare), value=IGNORE)


class _InChunks(torch.autograd.Function):
    """A sum whose gradient is known as soon as the sum is: probability - target, times a matrix.

    So the forward pass makes both, and the backward pass only multiplies by a number.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        cap: float | None,
        size: int,
    ) -> Tensor:
        kind = rows.device.type
        half = torch.is_autocast_enabled(kind)
        narrow = torch.get_autocast_dtype(kind) if half else weight.dtype
        by_rows = torch.empty_like(rows)
        by_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        by_bias = None if bias is None else torch.zeros_like(bias)
        total = rows.new_zeros(1, dtype=torch.promote_types(rows.dtype, torch.float32))
        with torch.autocast(kind, enabled=False):
            matrix = weight.to(narrow)  # (V, E)
            shift = None if bias is None else bias.to(narrow)
            for start in range(0, len(rows), size):
                chunk = slice(start, start + size)
                some = rows[chunk].to(narrow)  # (C, E)
                logits = F.linear(some, matrix, shift).to(total.dtype)  # (C, V)
                with targets_explained(targets, len(weight)):
                    nats, slope = _with_slope(logits, targets[chunk], smoothing, cap)
                total += nats
                if by_bias is not None:
                    by_bias += slope.sum(0)
                slope = slope.to(narrow)
                by_rows[chunk] = slope @ matrix  # (C, E)
                if by_weight is not None:
                    _add_product(by_weight, slope.T, some)  # (V, E)
        ctx.gradients = by_rows, by_weight, by_bias
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        # Multiplied where they are: a copy of the matrix's would be the largest tensor here.
        if ctx.gradients is None:
            raise RuntimeError(
                "the loss in chunks has given its gradient away and has no second one: "
                "use vocabulary_loss=at_once to go backward twice"
            )
        found = [None if each is None else each.mul_(upstream) for each in ctx.gradients]
        ctx.gradients = None
        return *found, None, None, None, None


def _add_product(total: Tensor, one: Tensor, other: Tensor) -> None:
    """total += one @ other; without a second matrix where both have one type."""
    if one.dtype == total.dtype:
        total.addmm_(one, other)
    else:
        total += one @ other


def _with_slope(
    logits: Tensor, targets: Tensor, smoothing: float, cap: float | None
) -> tuple[Tensor, Tensor]:
    """The sum for some rows, and its derivative by their logits (C, V), written over these."""
    logits = capped(logits, cap)
    flattened = None if cap is None else 1 - (logits / cap).square()  # the derivative of the cap
    valid = targets != IGNORE  # (C,)
    place = targets.masked_fill(~valid, 0)[:, None]  # (C, 1)
    chosen = logits.gather(1, place)[:, 0]  # (C,)
    average = logits.mean(dim=1)
    largest = logits.amax(dim=1, keepdim=True)  # (C, 1)
    slope = logits.sub_(largest).exp_()
    norm = slope.sum(dim=1, keepdim=True)  # (C, 1)
    nats = (norm.log() + largest)[:, 0] - (1 - smoothing) * chosen - smoothing * average
    slope.div_(norm)  # the probabilities
    slope.sub_(smoothing / slope.shape[1])
    slope.scatter_add_(1, place, slope.new_full(place.shape, smoothing - 1))
    if flattened is not None:
        slope.mul_(flattened)
    slope.mul_(valid[:, None])
    return (nats * valid).sum()[None], slope
