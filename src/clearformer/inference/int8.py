"""Weights in eight bits: a quarter of the memory, and of the time where memory is the time.

A row of a matrix becomes whole numbers from -127 to 127 and one scale. On a CPU the product is
torch's own (fbgemm), which also rounds the input to eight bits; elsewhere the rows are put back
into floating point, which saves memory and no time.

torch rounds all rows of an input alike, by the least and the largest number of them together, so
that a text would depend on its neighbours. Here each row is moved to [0, 1] first, and back
after: then they have one range, and each is rounded as if it were alone.

Quantizing is a transformation of a finished model: `quantize` puts other modules in the place
of its matrices, and nothing else knows.

Axes: B batch, T tokens, I inputs, O outputs, V vocabulary, E model width.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Rows = tuple[Tensor, Tensor]  # int8 (O, I) and scales (O,)


def rounded(weight: Tensor) -> Rows:
    """The nearest whole numbers, with a scale for each row that spans its largest."""
    weight = weight.detach().float()
    scale = weight.abs().amax(dim=1).clamp(min=1e-12) / 127  # (O,)
    return (weight / scale[:, None]).round().to(torch.int8), scale


class Int8Linear(nn.Module):
    """x W^T + b with W in int8."""

    def __init__(self, rows: Rows, bias: Tensor | None) -> None:
        super().__init__()
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self.out_features, self.in_features = rows[0].shape
        # What torch packs is no tensor: it has one device, the CPU, and no place in a state dict.
        self.packed: Any = _pack(rows) if rows[0].device.type == "cpu" else None
        if self.packed is None:
            self.register_buffer("numbers", rows[0])
            self.register_buffer("scale", rows[1])
        else:
            self.sums = rows[0].sum(dim=1) * rows[1]  # (O,)

    def forward(self, x: Tensor) -> Tensor:
        if self.packed is None:
            return F.linear(x, self.weight.to(x.dtype), self.bias)  # (..., O)
        wide = x.float()
        least = wide.amin(dim=-1, keepdim=True)  # (..., 1); aminmax would take longer than both
        span = (wide.amax(dim=-1, keepdim=True) - least).clamp_(min=TINY)
        # W x = W (span u + least 1) = span W u + least W 1
        u = (wide - least).div_(span)  # (..., I)
        moved: Tensor = torch.ops.quantized.linear_dynamic(u, self.packed, SEVEN_BITS)
        y = moved.mul_(span).addcmul_(least, self.sums)  # (..., O)
        return (y if self.bias is None else y.add_(self.bias)).to(x.dtype)

    def rows(self) -> Rows:
        """The whole numbers and their scales."""
        if self.packed is None:
            return cast(Tensor, self.numbers), cast(Tensor, self.scale)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantized, _ = torch.ops.quantized.linear_unpack(self.packed)
            return quantized.int_repr(), quantized.q_per_channel_scales().float()

    @property
    def weight(self) -> Tensor:
        """The matrix in floating point, for whoever needs a part of it (cross-attention)."""
        numbers, scale = self.rows()
        return numbers.float() * scale[:, None]  # (O, I)


class Int8Embedding(nn.Module):
    """A table of vectors in int8."""

    def __init__(self, rows: Rows, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = rows[0].shape
        self.register_buffer("numbers", rows[0])
        self.register_buffer("scale", rows[1])
        self.dtype = dtype

    def forward(self, tokens: Tensor) -> Tensor:
        numbers, scale = self.rows()
        # Looked up as torch's own table does it: an index of -1 would be the last row.
        found = F.embedding(tokens, numbers) * F.embedding(tokens, scale[:, None])
        return found.to(self.dtype)  # (B, T, E)

    def rows(self) -> Rows:
        return cast(Tensor, self.numbers), cast(Tensor, self.scale)


def quantize(model: nn.Module) -> nn.Module:
    """Put int8 in the place of the model's matrices and its table of tokens, one by one.

    Norms, biases and positions stay as they are: they are small, and errors in them are not. A
    head that shares the table's weight shares its whole numbers too.
    """
    for parent, name, module in list(_matrices(model)):
        _replace(parent, name, module, rounded(cast(Tensor, module.weight)))
    return model


def int8_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Everything there is to a quantized model: `x.weight` in int8 beside `x.scale`, the rest as
    it is. Plain tensors, to be stored; what a head shares with the table is there once.
    """
    found = {name: tensor for name, tensor in model.state_dict().items() if not _inner(name)}
    tables: list[Tensor] = []
    for path, module in model.named_modules():
        if isinstance(module, Int8Linear | Int8Embedding):
            numbers, scale = module.rows()
            if not any(numbers.equal(table) for table in tables):
                found[f"{path}.weight"], found[f"{path}.scale"] = numbers, scale
            if isinstance(module, Int8Embedding):
                tables.append(numbers)
    return found


def load_int8(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The quantized model that `int8_tensors` described, from a model of the same shape, which
    needs no memory for its weights.
    """
    left = dict(tensors)
    tables: list[Rows] = []
    for parent, name, module in list(_matrices(model)):
        path = next(p for p, m in model.named_modules() if m is module)
        shape = cast(Tensor, module.weight).shape
        weight, scale = left.pop(f"{path}.weight", None), left.pop(f"{path}.scale", None)
        rows = next((each for each in tables if each[0].shape == shape), None)
        if weight is not None and scale is not None:
            rows = weight, scale
        if rows is None or rows[0].shape != shape or rows[0].dtype != torch.int8:
            raise ValueError(f"{path} is missing from the int8 weights, or has another shape")
        if isinstance(module, nn.Linear):
            bias = None if module.bias is None else left.get(f"{path}.bias")
            parent.register_module(name, Int8Linear(rows, bias))
        else:
            tables.append(rows)
            parent.register_module(name, Int8Embedding(rows, torch.float32))
    own = {name for name in model.state_dict() if not _inner(name)}
    if own != set(left):
        wrong = sorted(own.symmetric_difference(left))
        raise ValueError(f"{wrong[0]} is missing from the int8 weights, or is too much there")
    model.load_state_dict(left, strict=False, assign=True)
    return model


def _matrices(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Parent, name and module of what is worth quantizing."""
    for parent in model.modules():
        for name, module in parent.named_children():
            # A projection of distances is read with other rows, and is small beside the rest.
            table = isinstance(module, nn.Embedding) and name == "token"
            if table or (isinstance(module, nn.Linear) and not hasattr(parent, "distance")):
                yield parent, name, module


def _replace(parent: nn.Module, name: str, module: nn.Module, rows: Rows) -> None:
    if isinstance(module, nn.Linear):
        parent.register_module(name, Int8Linear(rows, module.bias))
    else:
        dtype = cast(Tensor, module.weight).dtype
        parent.register_module(name, Int8Embedding(rows, dtype))


def _inner(name: str) -> bool:
    return name.endswith((".numbers", ".scale"))


def _pack(rows: Rows) -> Any:
    """The rows in the order in which fbgemm reads them; None where torch has no such kernel."""
    numbers, scale = rows
    zeros = torch.zeros(len(scale), dtype=torch.long)
    try:
        with warnings.catch_warnings():
            # torch means to remove the type of tensor that goes in here (pytorch#184982).
            warnings.simplefilter("ignore")
            tensor = torch._make_per_channel_quantized_tensor(numbers, scale.double(), zeros, 0)
            return torch.ops.quantized.linear_prepack(tensor, None)
    except (RuntimeError, AttributeError):
        return None


TINY = 1e-30  # the span of a row of equal numbers, which is moved to zeros
# Without VNNI the sum of two products may not fit in 16 bits unless the input has 7.
SEVEN_BITS = not getattr(torch.cpu, "_is_vnni_supported", lambda: False)()
