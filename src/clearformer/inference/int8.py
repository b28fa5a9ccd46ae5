"""int8 weights: a quarter of the memory, and of the time where memory bandwidth limits it.

Each row of a matrix becomes integers from -127 to 127 and a scale. On a CPU the product is torch's
(fbgemm), which also quantizes the input to 8 bits; on other devices the weights are dequantized,
which saves memory but no time.

torch quantizes all rows of an input with one range, so that a text would depend on the others in
its batch. Here several rows are first mapped to the integers that each would have alone, and the
result is mapped back.

`quantize` replaces the matrices of a finished model by other modules.

Axes: B batch, T tokens, I inputs, O outputs, V vocabulary, E model width.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.inference.huge_pages import collapse

Rows = tuple[Tensor, Tensor]  # int8 (O, I) and scales (O,)


def rounded(weight: Tensor) -> Rows:
    """The nearest integers, with a scale for each row by its largest absolute value."""
    weight = weight.detach().float()
    scale = weight.abs().amax(dim=1).clamp(min=1e-12) / 127  # (O,)
    return (weight / scale[:, None]).round().to(torch.int8), scale


class Int8Linear(nn.Module):
    """x W^T + b with W in int8."""

    def __init__(self, rows: Rows, bias: Tensor | None) -> None:
        super().__init__()
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self.out_features, self.in_features = rows[0].shape
        # Packed weights are not a tensor: they are on the CPU only, and not in the state dict.
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
        one_row = wide.numel() == self.in_features
        y = self._row(wide) if one_row else self._rows(wide)  # (..., O)
        return (y if self.bias is None else y.add_(self.bias)).to(x.dtype)

    def product(self, rows: int) -> Callable[[Tensor], Tensor]:
        """The same function for about `rows` rows, with the least overhead."""
        if rows > 1 or self.packed is None:
            return self.forward
        multiply, packed, bias = torch.ops.quantized.linear_dynamic.default, self.packed, self.bias

        def one_row(x: Tensor) -> Tensor:
            if x.numel() != self.in_features or x.dtype != torch.float32:
                return self.forward(x)
            y: Tensor = multiply(x, packed, SEVEN_BITS)
            return y if bias is None else y.add_(bias)

        return one_row

    def _row(self, x: Tensor) -> Tensor:
        """W x for a single row: torch's own range is the range of this row."""
        y: Tensor = torch.ops.quantized.linear_dynamic(x, self.packed, SEVEN_BITS)
        return y

    def _rows(self, x: Tensor) -> Tensor:
        """W x for several rows, each with its own range [minimum, maximum], which includes 0."""
        minimum = x.amin(dim=-1, keepdim=True).clamp_(max=0)  # (..., 1); aminmax would be slower
        maximum = x.amax(dim=-1, keepdim=True).clamp_(min=0)
        step = (maximum - minimum).div_(LEVELS).clamp_(min=MIN_STEP)
        zero = (minimum / step).neg_().round_()  # the integer that stands for 0
        # 0 to LEVELS, of which torch rounds none: W x = step (W n - zero W 1)
        n = (x * step.reciprocal()).round_().add_(zero).clamp_(0, LEVELS)  # (..., I)
        return self._row(n).addcmul_(zero, self.sums, value=-1).mul_(step)

    def rows(self) -> Rows:
        """The integers and their scales."""
        if self.packed is None:
            return cast(Tensor, self.numbers), cast(Tensor, self.scale)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantized, _ = torch.ops.quantized.linear_unpack(self.packed)
            return quantized.int_repr(), quantized.q_per_channel_scales().float()

    @property
    def weight(self) -> Tensor:
        """The dequantized matrix, for users of a part of it (cross-attention)."""
        numbers, scale = self.rows()
        return numbers.float() * scale[:, None]  # (O, I)


class Int8Embedding(nn.Module):
    """An embedding with int8 weights."""

    def __init__(self, rows: Rows, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = rows[0].shape
        self.register_buffer("numbers", rows[0])
        self.register_buffer("scale", rows[1])
        self.dtype = dtype

    def forward(self, tokens: Tensor) -> Tensor:
        numbers, scale = self.rows()
        # F.embedding refuses negative ids, which indexing would not.
        vectors = F.embedding(tokens, numbers) * F.embedding(tokens, scale[:, None])
        return vectors.to(self.dtype)  # (B, T, E)

    def rows(self) -> Rows:
        return cast(Tensor, self.numbers), cast(Tensor, self.scale)


def quantize(model: nn.Module) -> nn.Module:
    """Replace the model's matrices and its token embedding by int8 modules, one by one.

    Norms, biases and positions are not quantized: they are small, and sensitive to errors. A head
    that is tied to the embedding shares its integers too.
    """
    for parent, name, module in list(matrices(model)):
        _replace(parent, name, module, rounded(cast(Tensor, module.weight)))
    return _in_huge_pages(model)


def int8_tensors(model: nn.Module) -> dict[str, Tensor]:
    """All tensors of a quantized model, for storage: `x.weight` in int8 with `x.scale`, and the
    others unchanged; tied weights once.
    """
    tensors = {name: tensor for name, tensor in model.state_dict().items() if not _inner(name)}
    tables: list[Tensor] = []
    for path, module in model.named_modules():
        if isinstance(module, Int8Linear | Int8Embedding):
            numbers, scale = module.rows()
            if not any(numbers.equal(table) for table in tables):
                tensors[f"{path}.weight"], tensors[f"{path}.scale"] = numbers, scale
            if isinstance(module, Int8Embedding):
                tables.append(numbers)
    return tensors


def load_int8(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Load the result of `int8_tensors` into a model of the same shape, which may be an outline
    without memory.
    """
    left = dict(tensors)
    tables: list[Rows] = []
    for parent, name, module in list(matrices(model)):
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
    expected = {name for name in model.state_dict() if not _inner(name)}
    if expected != set(left):
        wrong = sorted(expected.symmetric_difference(left))
        raise ValueError(f"{wrong[0]} is missing from the int8 weights, or not in the model")
    model.load_state_dict(left, strict=False, assign=True)
    return _in_huge_pages(model)


def dequantized(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The result of `int8_tensors` as float32 weights."""
    scales = {name.removesuffix(".scale"): t for name, t in tensors.items() if _is_scale(t, name)}
    floats = {name: tensor for name, tensor in tensors.items() if not _is_scale(tensor, name)}
    for path, scale in scales.items():
        numbers = floats.get(f"{path}.weight")
        if numbers is None or numbers.dtype != torch.int8 or numbers.shape[:1] != scale.shape:
            raise ValueError(f"{path}.weight is missing from the int8 weights, or does not fit")
        floats[f"{path}.weight"] = numbers.float() * scale[:, None]
    return floats


def _is_scale(tensor: Tensor, name: str) -> bool:
    return name.endswith(".scale") and tensor.dim() == 1


def matrices(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Parent, name and module of each matrix to quantize."""
    for parent in model.modules():
        for name, module in parent.named_children():
            # The projection of relative positions is small, and its rows are used differently.
            table = isinstance(module, nn.Embedding) and name == "token"
            if table or (isinstance(module, nn.Linear) and not hasattr(parent, "distance")):
                yield parent, name, module


def _replace(parent: nn.Module, name: str, module: nn.Module, rows: Rows) -> None:
    if isinstance(module, nn.Linear):
        parent.register_module(name, Int8Linear(rows, module.bias))
    else:
        dtype = cast(Tensor, module.weight).dtype
        parent.register_module(name, Int8Embedding(rows, dtype))


def _in_huge_pages(model: nn.Module) -> nn.Module:
    packed = (each for each in model.modules() if isinstance(each, Int8Linear))
    collapse(sum(each.out_features * each.in_features for each in packed))
    return model


def _inner(name: str) -> bool:
    return name.endswith((".numbers", ".scale"))


def _pack(rows: Rows) -> Any:
    """The rows packed for fbgemm; None if torch has no such kernel here."""
    numbers, scale = rows
    zeros = torch.zeros(len(scale), dtype=torch.long)
    try:
        with warnings.catch_warnings():
            # torch plans to remove this type of tensor (pytorch#184982).
            warnings.simplefilter("ignore")
            tensor = torch._make_per_channel_quantized_tensor(numbers, scale.double(), zeros, 0)
            return torch.ops.quantized.linear_prepack(tensor, None)
    except (RuntimeError, AttributeError):
        return None


# Without VNNI the sum of two products may overflow 16 bits unless the input has 7 bits.
SEVEN_BITS = not getattr(torch.cpu, "_is_vnni_supported", lambda: False)()
LEVELS = 127 if SEVEN_BITS else 255
MIN_STEP = 1e-30  # of a row of zeros
