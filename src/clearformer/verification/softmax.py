"""Every softmax of a trace: torch's own, and those written out with exp and sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from clearformer.verification.trace import Op, Trace

MASKED = ("mul", "masked_fill", "where")  # between exp and the sum


def softmaxes(trace: Trace) -> Iterator[Op]:
    """Each softmax as one operation `softmax(scores, dim)`, in order."""
    for op in trace.ops:
        found: Op | None = op if op.name == "softmax" else None
        if op.name == "div":
            found = _divided(trace, op)
        elif op.name == "exp":
            found = _of_logarithm(trace, op)
        if found is not None and found.value is not None and found.value.dim() >= 2:
            yield found


def _divided(trace: Trace, op: Op) -> Op | None:
    """exp(x) / exp(x).sum(dim)."""
    if len(op.tensors) != 2:
        return None
    numerator, total = (trace.producer(each, op.index) for each in op.tensors)
    if numerator is None or total is None or total.name != "sum":
        return None
    if not total.tensors or total.tensors[0] is not numerator.out:
        return None
    made: Op | None = numerator
    if numerator.name in MASKED:
        made = _first_producer(trace, numerator, "exp")
    if made is None or made.name != "exp":
        return None
    return _as_softmax(op, made.tensors[0], _axis(total))


def _of_logarithm(trace: Trace, op: Op) -> Op | None:
    """exp(log_softmax(x, dim)), or exp(x - logsumexp(x, dim))."""
    made = trace.producer(op.tensors[0], op.index) if op.tensors else None
    if made is None:
        return None
    if made.name == "log_softmax":
        return _as_softmax(op, made.tensors[0], _axis(made))
    if made.name == "sub" and len(made.tensors) == 2:
        total = trace.producer(made.tensors[1], made.index)
        if total is not None and total.name == "logsumexp":
            return _as_softmax(op, made.tensors[0], _axis(total))
    return None


def _first_producer(trace: Trace, op: Op, name: str) -> Op | None:
    made = (trace.producer(each, op.index) for each in op.tensors)
    return next((each for each in made if each is not None and each.name == name), None)


def _axis(op: Op) -> Any:
    dim = op.argument(1, "dim")
    dim = op.argument(1, "axis") if dim is None else dim
    return dim[0] if isinstance(dim, list | tuple) and len(dim) == 1 else dim


def _as_softmax(op: Op, scores: Tensor, dim: Any) -> Op:
    return replace(op, name="softmax", args=(scores, dim), kwargs={})
