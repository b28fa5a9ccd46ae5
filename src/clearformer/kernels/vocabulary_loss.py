"""Chunked loss over a vocabulary: the same as `core.heads.at_once` with less memory.

With a vocabulary of 50,000 tokens the logits of a batch, their logarithms and their gradient are
the largest tensors of a training step. `in_chunks` computes the loss and its gradient for a few
rows at a time, and keeps a gradient of the model width instead of one of the vocabulary size.

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
    """The summed loss (1,), whose gradient is computed in the forward pass."""
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
    """The loss of `at_once`, computed in chunks of rows; a single chunk is left to `at_once`."""
    require_targets(targets, rows.shape[:-1])
    size = max(1, CHUNK // project.out_features)
    if len(rows) <= size:
        return at_once(project, rows, targets, smoothing, cap)
    if not torch.is_grad_enabled():
        sums, counts = zip(
            *(
                at_once(project, chunk, chunk_targets, smoothing, cap)
                for chunk, chunk_targets in zip(rows.split(size), targets.split(size), strict=True)
            ),
            strict=True,
        )
        return torch.stack(sums).sum(0), torch.stack(counts).sum(0)
    return summed(project, rows, targets, smoothing, cap), (targets != IGNORE).sum()[None]


def with_target_padded(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """`with_target`, padded by rows without a target to a multiple of 64 (above 64 rows).

    The number of masked tokens differs between steps. Without padding, the freed logits of one step
    would rarely fit those of the next, and the heap would keep growing.
    """
    rows, row_targets = with_target(hidden, targets)
    spare = -len(rows) % 64 if len(rows) > 64 else 0
    return F.pad(rows, (0, 0, 0, spare)), F.pad(row_targets, (0, spare), value=IGNORE)


class _InChunks(torch.autograd.Function):
    """Summed cross entropy, whose gradient is (probability - target) times the weights.

    The forward pass computes both; the backward pass only multiplies by the upstream gradient.
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
        dtype = torch.get_autocast_dtype(kind) if half else weight.dtype
        grad_rows = torch.empty_like(rows)
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        grad_bias = None if bias is None else torch.zeros_like(bias)
        total = rows.new_zeros(1, dtype=torch.promote_types(rows.dtype, torch.float32))
        with torch.autocast(kind, enabled=False):
            matrix = weight.to(dtype)  # (V, E)
            half_bias = None if bias is None else bias.to(dtype)
            for start in range(0, len(rows), size):
                chunk = slice(start, start + size)
                chunk_rows = rows[chunk].to(dtype)  # (C, E)
                logits = F.linear(chunk_rows, matrix, half_bias).to(total.dtype)  # (C, V)
                with targets_explained(targets, len(weight)):
                    nats, grad_logits = _loss_and_gradient(logits, targets[chunk], smoothing, cap)
                total += nats
                if grad_bias is not None:
                    grad_bias += grad_logits.sum(0)
                grad_logits = grad_logits.to(dtype)
                grad_rows[chunk] = grad_logits @ matrix  # (C, E)
                if grad_weight is not None:
                    _add_product(grad_weight, grad_logits.T, chunk_rows)  # (V, E)
        ctx.gradients = grad_rows, grad_weight, grad_bias
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        # In place: a copy of the weight's gradient would be the largest tensor here.
        if ctx.gradients is None:
            raise RuntimeError(
                "the chunked loss frees its gradient after the first backward pass: use "
                "vocabulary_loss=at_once to call backward twice"
            )
        gradients = [None if each is None else each.mul_(upstream) for each in ctx.gradients]
        ctx.gradients = None
        return *gradients, None, None, None, None


def _add_product(total: Tensor, one: Tensor, other: Tensor) -> None:
    """total += one @ other; without a temporary if all have the same dtype."""
    if one.dtype == total.dtype:
        total.addmm_(one, other)
    else:
        total += one @ other


def _loss_and_gradient(
    logits: Tensor, targets: Tensor, smoothing: float, cap: float | None
) -> tuple[Tensor, Tensor]:
    """The summed loss, and its gradient with respect to the logits (C, V), which it overwrites."""
    logits = capped(logits, cap)
    cap_gradient = None if cap is None else 1 - (logits / cap).square()  # the derivative of the cap
    valid = targets != IGNORE  # (C,)
    index = targets.masked_fill(~valid, 0)[:, None]  # (C, 1)
    chosen = logits.gather(1, index)[:, 0]  # (C,)
    average = logits.mean(dim=1)
    largest = logits.amax(dim=1, keepdim=True)  # (C, 1)
    gradient = logits.sub_(largest).exp_()
    norm = gradient.sum(dim=1, keepdim=True)  # (C, 1)
    nats = (norm.log() + largest)[:, 0] - (1 - smoothing) * chosen - smoothing * average
    gradient.div_(norm)  # the probabilities
    gradient.sub_(smoothing / gradient.shape[1])
    gradient.scatter_add_(1, index, gradient.new_full(index.shape, smoothing - 1))
    if cap_gradient is not None:
        gradient.mul_(cap_gradient)
    gradient.mul_(valid[:, None])
    return (nats * valid).sum()[None], gradient
