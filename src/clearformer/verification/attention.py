"""Attention found in a trace: scores, scale, mask, softmax and the product with the values.

Axes: B batch, H heads, Q queries, K keys, D head width.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.verification.findings import Place
from clearformer.verification.softmax import softmaxes
from clearformer.verification.trace import Op, Trace

PRODUCTS = ("matmul", "bmm", "einsum", "baddbmm", "tensordot")
FOLLOWED = {
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "masked_fill",
    "where",
    "to",
    "clamp",
    "tanh",
    "neg",
    "contiguous",
    "dropout",
    "setitem",
    "tril",
    "triu",
    "nan_to_num",
    "view",
    "reshape",
    "transpose",
    "permute",
    "unsqueeze",
    "squeeze",
    "expand",
    "getitem",
    "flatten",
    "unflatten",
    "clone",
    "cat",
    "stack",
    "repeat",
    "repeat_interleave",
    "chunk",
    "split",
    "unbind",
    "narrow",
    "rotary",
    "select",
    "masked_softmax",
    "view_as_real",
    "view_as_complex",
    "type_as",
    "roll",
    "addcmul",
    "detach",
    "lerp",
    "pad",
    "index_select",
    "tensor_split",
    "sigmoid",
    "abs",
    "max",
    "maximum",
    "minimum",
}
DEPTH = 60
PROJECTIONS = ("linear", "addmm", "matmul", "bmm", "einsum", "conv1d", "baddbmm", "embedding")


@dataclass
class Attention:
    """One attention of a forward pass, in eval mode."""

    softmax: Op  # or the fused call
    product: Op | None  # weights times values
    fused: bool
    q: Tensor | None = None
    k: Tensor | None = None
    v: Tensor | None = None
    raw: Tensor | None = None  # q k^T before anything else
    weights: Tensor | None = None  # as they meet the values
    probabilities: Tensor | None = None  # as the softmax gave them
    head_width: int | None = None
    factor: float | None = None  # what scores are multiplied with; None: learned or unknown
    factors: list[float] = field(default_factory=list)
    followed: bool = True  # queries and keys could be followed back to their projections
    normed: bool = False  # queries or keys are normed
    projected_from: int | None = None  # the width of what queries are projected from
    fills: list[float] = field(default_factory=list)  # what hidden scores become
    before: list[Op] = field(default_factory=list)  # between the product q k^T and the softmax
    after: list[Op] = field(default_factory=list)  # between the softmax and the values
    scores_op: Op | None = None

    @property
    def after_changes_sum(self) -> bool:
        """Whether weights are normalised again after the softmax."""
        return any(op.name in ("div", "normalize") for op in self.after)

    @property
    def place(self) -> Place:
        return self.softmax.place

    @property
    def output(self) -> Op | None:
        return self.softmax if self.fused else self.product

    @property
    def seen(self) -> Tensor | None:
        """(Q, K): which keys have weight, in any row and head."""
        if self.weights is None or self.weights.dim() < 2:
            return None
        table = self.weights.reshape(-1, *self.weights.shape[-2:])
        return (table > 0).any(dim=0)


def find_attention(trace: Trace) -> list[Attention]:
    """Every attention in the trace, in order."""
    found = [_fused(trace, op) for op in trace.named("scaled_dot_product_attention")]
    explicit = (_explicit(trace, op) for op in softmaxes(trace))
    found += [each for each in explicit if each is not None]
    return sorted(found, key=lambda each: each.softmax.index)


# --- torch's fused attention ---------------------------------------------------------------


def _fused(trace: Trace, op: Op) -> Attention:
    q, k, v = (
        _as_it_was(trace, op.argument(i, name), op.index)
        for i, name in enumerate(("query", "key", "value"))
    )
    mask, causal = op.argument(3, "attn_mask"), bool(op.argument(5, "is_causal", False))
    scale = op.argument(6, "scale")
    width = q.shape[-1]
    event = Attention(op, op, True, q, k, v, head_width=width)
    own = width**-0.5 if scale is None else float(scale)
    event.factors = [own]
    for operand in (op.argument(0, "query"), op.argument(1, "key")):
        _operand_factors(trace, operand, op.index, event)
    event.factor = math.prod(event.factors)
    keys, values = _each_head(k, q), v
    scores = q.double() @ keys.double().transpose(-1, -2)
    event.raw = scores
    scores = scores * own
    if causal:
        ones = scores.new_ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~ones, -math.inf)
    if mask is not None:
        mask = _as_it_was(trace, mask, op.index)
        if mask.dtype is torch.bool:
            scores = scores.masked_fill(~mask, -math.inf)
        else:
            scores = scores + mask.double()
            event.fills += _mask_fill(mask)
    event.weights = event.probabilities = scores.softmax(dim=-1).nan_to_num()
    event.v = values
    return event


def _as_it_was(trace: Trace, tensor: Tensor, before: int) -> Tensor:
    """The value that a tensor had at an operation, whatever was written into it later."""
    made = trace.producer(tensor, before)
    return tensor.detach() if made is None or made.value is None else made.value


def _each_head(k: Tensor, q: Tensor) -> Tensor:
    """Keys of grouped queries, repeated for each head."""
    if k.dim() == 4 and k.shape[1] != q.shape[1] and k.shape[1] > 0:
        return k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return k


# --- attention written out -----------------------------------------------------------------


def _explicit(trace: Trace, softmax: Op) -> Attention | None:
    scores = softmax.argument(0, "input")
    if not isinstance(scores, Tensor):
        return None
    path = _path_to_product(trace, scores, softmax.index, DEPTH)
    if path is None:
        return None
    *between, made = path
    if made.value is None or made.value.dim() < 2:
        return None
    event = Attention(softmax, None, False, scores_op=made, raw=made.value)
    event.before = list(reversed(between))
    event.probabilities = softmax.value
    event.weights = softmax.value
    _operands(trace, made, event)
    _weights_product(trace, softmax, event)
    if event.product is None:
        return None
    event.factors = []
    known = _score_factors(made, event)
    for operand in _operand_tensors(made):
        _operand_factors(trace, operand, made.index, event)
    event.factor = math.prod(event.factors) if known else None
    return event


def _path_to_product(trace: Trace, tensor: Tensor, before: int, depth: int) -> list[Op] | None:
    """The operations from a tensor back to the product of queries and keys."""
    op = trace.producer(tensor, before)
    if op is None or depth == 0:
        return None
    mixes = _mixes_heads(op)
    if op.name in PRODUCTS and not mixes:
        return [op]
    if op.name not in FOLLOWED and not mixes:
        return None
    for each in op.tensors:
        path = _path_to_product(trace, each, op.index, depth - 1)
        if path is not None:
            return [op, *path]
    return None


def _mixes_heads(op: Op) -> bool:
    """Whether scores or weights of all heads are mixed by a table of parameters."""
    if op.name not in (*PRODUCTS, "linear", "conv2d"):
        return False
    tables = [each for each in op.tensors if isinstance(each, nn.Parameter)]
    given = [each for each in op.tensors if not isinstance(each, nn.Parameter)]
    if not tables or len(given) != 1 or given[0].dim() != 4 or op.out.dim() != 4:
        return False
    if op.name == "conv2d":
        return given[0].shape[-2:] == op.out.shape[-2:]
    return tables[0].dim() == 2 and sorted(given[0].shape) == sorted(op.out.shape)


def _operand_tensors(op: Op) -> list[Tensor]:
    if op.name == "einsum":
        return op.tensors[:2]
    if op.name == "baddbmm":
        return op.tensors[1:3]
    return op.tensors[:2]


def _operands(trace: Trace, made: Op, event: Attention) -> None:
    operands = _operand_tensors(made)
    if len(operands) != 2:
        return
    a, b = (_as_it_was(trace, each, made.index) for each in operands)
    if made.name == "einsum" and isinstance(made.args[0], str):
        event.head_width = _contracted(made.args[0], a, b)
        event.q, event.k = a, b
        return
    event.head_width = a.shape[-1]
    event.q, event.k = a, b.transpose(-1, -2) if b.dim() >= 2 else b


def _contracted(equation: str, a: Tensor, b: Tensor) -> int | None:
    left, _, out = equation.replace(" ", "").partition("->")
    first, _, second = left.partition(",")
    shared = [each for each in first if each in second and each not in out and each.isalpha()]
    if "..." in first:
        first = first.replace("...", "." * (a.dim() - len(first) + 3))
    return a.shape[first.index(shared[0])] if len(shared) == 1 else None


def _score_factors(made: Op, event: Attention) -> bool:
    """Collect what scores are multiplied with and filled with; False: something learned."""
    known = True
    if made.name == "baddbmm":
        event.factors.append(float(made.kwargs.get("alpha", 1.0)))
    for op in event.before:
        if op.name in ("mul", "div"):
            number = _number(op)
            if number is None:
                known = known and _is_mask(op)
            else:
                event.factors.append(number if op.name == "mul" else 1 / number)
        event.fills += _fill(op)
    return known


def _is_mask(op: Op) -> bool:
    """Whether scores are multiplied by a table of zeros and ones."""
    return any(
        each.numel() > 1 and not each.requires_grad and bool(((each == 0) | (each == 1)).all())
        for each in op.tensors[1:]
    )


def _number(op: Op) -> float | None:
    """The number that a tensor is multiplied or divided with; None if it is learned or many."""
    others = [each for each in op.args[:2] if not _large(each)]
    others += [each for each in op.kwargs.values() if isinstance(each, int | float)]
    if len(others) != 1:
        return None
    (other,) = others
    if isinstance(other, Tensor):
        if other.requires_grad or other.numel() != 1:
            return None
        other = other.item()
    return float(other) if isinstance(other, int | float) and other != 0 else None


def _large(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() > 1


def _operand_factors(trace: Trace, operand: Tensor, before: int, event: Attention) -> None:
    """Numbers that queries or keys are multiplied with before their product, norms too."""
    tensor: Tensor | None = operand
    for _ in range(DEPTH):
        op = None if tensor is None else trace.producer(tensor, before)
        if op is None or op.name in PROJECTIONS:
            if op is not None and op.tensors and op.name != "embedding":
                event.projected_from = op.tensors[0].shape[-1]
            return
        if op.name in ("layer_norm", "rms_norm", "normalize", "rsqrt", "norm", "linalg_norm") or (
            "norm" in op.place.module.rsplit(".", 1)[-1].lower()
        ):
            event.normed = True
            return
        if op.name not in FOLLOWED:
            event.followed = False  # a factor may hide behind it
            return
        if op.name in ("mul", "div") and (number := _number(op)) is not None:
            event.factors.append(number if op.name == "mul" else 1 / number)
        elif op.name in ("mul", "div") and any(
            _made_by(trace, each, op, "rsqrt", "norm") for each in op.tensors[1:]
        ):
            event.normed = True
            return
        before, tensor = op.index, (op.tensors[0] if op.tensors else None)


def _made_by(trace: Trace, tensor: Tensor, op: Op, *names: str) -> bool:
    made = trace.producer(tensor, op.index)
    return made is not None and made.name in names


def _fill(op: Op) -> list[float]:
    """What hidden scores become in this operation."""
    if op.name == "masked_fill":
        value = op.argument(2, "value")
    elif op.name == "setitem":
        value = op.argument(2, "value")
        value = value[0] if isinstance(value, list | tuple) and value else value
    elif op.name == "where":
        numbers = [each for each in op.args[1:] if not _large(each)]
        value = numbers[0] if numbers else None
    elif op.name in ("add", "sub"):
        found = [fill for each in op.tensors[1:] for fill in _mask_fill(each)]
        return [-each for each in found] if op.name == "sub" else found
    else:
        return []
    if isinstance(value, Tensor):
        value = value.item() if value.numel() == 1 else None
    return [float(value)] if isinstance(value, int | float) else []


def _mask_fill(mask: Tensor) -> list[float]:
    """The value of hidden pairs in an additive mask that is 0 elsewhere."""
    if mask.requires_grad or not mask.is_floating_point() or mask.numel() < 2:
        return []
    values = mask.detach().unique()
    if len(values) != 2 or 0 not in values:
        return []
    (other,) = (float(each) for each in values if each != 0)
    return [other] if abs(other) >= 20 else []


def _weights_product(trace: Trace, softmax: Op, event: Attention) -> None:
    """Follow the weights to their product with the values."""
    reached, frontier = {id(softmax.out)}, [softmax]
    for op in trace.ops[softmax.index + 1 :]:
        if not any(id(each) in reached for each in op.tensors):
            continue
        mixes = _mixes_heads(op)
        if op.name in PRODUCTS and not mixes:
            event.product, event.after = op, frontier[1:]
            operands = _operand_tensors(op)
            first = id(operands[0]) in reached
            weights, values = operands if first else (operands[1], operands[0])
            event.weights = _as_it_was(trace, weights, op.index)
            event.v = _as_it_was(trace, values, op.index)
            if op.name == "einsum" and isinstance(op.args[0], str):
                event.weights = _keys_last(op.args[0], event.weights, first)
            elif not first:
                event.weights = event.weights.transpose(-1, -2)
            return
        if (op.name not in FOLLOWED and not mixes) or len(frontier) > 12:
            return
        frontier.append(op)
        reached.add(id(op.out))


def _keys_last(equation: str, weights: Tensor, first: bool) -> Tensor:
    """Weights of an einsum as (..., Q, K): the axis that is summed over last.

    The other axes are in the order of the result, in which the batch is before the heads.
    """
    left, arrow, out = equation.replace(" ", "").partition("->")
    sides = left.split(",")
    own, other = sides if first else sides[::-1]
    out = out if arrow else "".join(sorted(axis for axis in own + other if left.count(axis) == 1))
    if "..." in own:
        own = own.replace("...", "".join(chr(200 + i) for i in range(weights.dim() - len(own) + 3)))
    summed = [axis for axis in own if axis in other and axis not in out]
    queries = [axis for axis in own if axis in out and axis not in other]
    if len(summed) != 1:
        return weights
    if len(queries) != 1:
        return weights.movedim(own.index(summed[0]), -1)
    rest = sorted((axis for axis in own if axis not in (*queries, *summed)), key=out.find)
    return weights.permute([own.index(axis) for axis in (*rest, *queries, *summed)])


def softmax_axis(event: Attention) -> int | None:
    """The axis of the softmax, counted from the end."""
    dim = event.softmax.argument(1, "dim")
    dim = event.softmax.argument(1, "axis") if dim is None else dim
    if not isinstance(dim, int) or event.softmax.value is None:
        return None
    return dim if dim < 0 else dim - event.softmax.value.dim()


def states_no_scale(source: str, file: str) -> bool:
    """Whether the code of the class or its file states explicitly that scores are not scaled."""
    if re.search(r"sqrt|\*\*\s*-?\s*\(?\s*-?0?\.5|rsqrt", source):
        return False
    said = re.search(
        r"self\.\w*scal\w*\s*=\s*1(\.0*)?\b(?!\s*/)|#.*(un|not? |without )scal", source
    )
    return said is not None or re.search(r"scal\w*\s*=\s*1(\.0*)?\b(?!\s*/)", file) is not None
