"""Runs any model by the functions of `exact`, so that all CPUs compute the same bits.

A model's own code runs in float64. `PortableMode` receives each operation that it calls: those that
IEEE 754 fixes are passed on, those of `exact` are replaced, and an operation that is in neither
list is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from clearformer.compressor import exact

VERSION = 1  # of the arithmetic: another one would decode other texts

# Operations that move numbers, compare them, or have one result by IEEE 754.
FIXED = frozenset(
    """
    _local_scalar_dense _to_copy _unique2 _unsafe_view abs alias all allclose amax amin any
    arange argmax as_strided bitwise_and bitwise_not bitwise_or cat ceil clamp clone
    constant_pad_nd contiguous copy copy_ detach detach_ div div_ embedding empty empty_like
    empty_strided eq equal expand fill_ flatten floor floor_ frexp full full_like gather ge gt
    index index_copy index_copy_ index_put_ index_select is_nonzero isfinite isnan item le
    lift_fresh logical_and logical_not logical_or lt masked_fill masked_fill_ max maximum min
    minimum mul mul_ narrow ne neg new_empty new_full new_ones new_zeros ones ones_like permute
    relu relu_ remainder repeat reshape resize_ roll round scalar_tensor select select_scatter
    set_ slice slice_scatter sort split split_with_sizes sqrt squeeze stack t to transpose tril
    triu unbind unfold unique_consecutive unsqueeze view where zero_ zeros zeros_like
    """.split()  # noqa: SIM905
)


class PortableMode(TorchDispatchMode):
    """Replaces what differs between CPUs in all operations under this mode."""

    def __init__(self, module: nn.Module) -> None:
        base: Any = super()  # torch has no types for it
        base.__init__()
        self.weights = {each.untyped_storage().data_ptr() for each in module.parameters()}
        self.quantized: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = operation.overloadpacket.__name__
        floating = any(isinstance(x, Tensor) and x.is_floating_point() for x in args)
        replace = REPLACED.get(name)
        if replace is not None and (floating or name in CREATED):
            return replace(self, *args, **kwargs)
        if name in FIXED or name in REPLACED:  # whole numbers are exact in any case
            return operation(*args, **kwargs)
        with self:  # what it consists of comes here again
            parts = operation.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        raise ValueError(
            f"this model uses the operation {name}, for which there is no portable arithmetic: "
            f"compress without `portable`"
        )

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """a b, where a weight b is rounded once."""
        if b.untyped_storage().data_ptr() not in self.weights:
            return exact.product(a, b)
        key = (b.data_ptr(), tuple(b.shape), b.stride())
        if key not in self.quantized:
            self.quantized[key] = exact.quantized(b, -2)
        return exact.quantized_product(exact.quantized(a, -1), self.quantized[key])


def _add(mode: PortableMode, a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    # A factor would be fused with the sum, which rounds once instead of twice.
    return torch.add(a, b if alpha == 1 else b * alpha)


def _add_(mode: PortableMode, a: Tensor, b: Any, *, alpha: float = 1) -> Tensor:
    return a.copy_(_add(mode, a, b, alpha=alpha))


def _sub(mode: PortableMode, a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    return torch.sub(a, b if alpha == 1 else b * alpha)


def _sub_(mode: PortableMode, a: Tensor, b: Any, *, alpha: float = 1) -> Tensor:
    return a.copy_(_sub(mode, a, b, alpha=alpha))


def _rsub(mode: PortableMode, a: Tensor, b: Any, alpha: float = 1) -> Tensor:
    return _sub(mode, b, a, alpha=alpha)


def _addcmul(mode: PortableMode, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + a * b * value


def _linear(mode: PortableMode, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    y = mode.product(x, weight.transpose(0, 1))
    return y if bias is None else y + bias


def _addmm(
    mode: PortableMode, x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    return x * beta + mode.product(a, b) * alpha


def _pow(mode: PortableMode, x: Any, y: Any) -> Tensor:
    if isinstance(y, int | float) and y == 2:
        return torch.mul(x, x)
    if isinstance(x, Tensor):
        raise ValueError(
            "this model uses powers of tensors, for which there is no portable arithmetic: "
            "compress without `portable`"
        )
    return exact.power(x, y)


def _layer_norm(
    mode: PortableMode, x: Tensor, shape: Sequence[int], weight: Any, bias: Any, epsilon: float
) -> Any:
    y = exact.layer_norm(x, range(-len(shape), 0), weight, bias, epsilon)
    return y, y, y  # the caller uses the first alone


def _rms_norm(
    mode: PortableMode, x: Tensor, shape: Sequence[int], weight: Any = None, epsilon: Any = None
) -> Tensor:
    small = torch.finfo(x.dtype).eps if epsilon is None else epsilon
    return exact.rms_norm(x, range(-len(shape), 0), weight, small)


def _attention(
    mode: PortableMode,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if is_causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    return exact.attention(q, k, v, mask, 1 / math.sqrt(q.shape[-1]) if scale is None else scale)


def _flash(
    mode: PortableMode,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    y = _attention(mode, q, k, v, attn_mask, dropout, is_causal, scale=scale)
    return y, y[..., 0]  # the caller uses the first alone


def _sum(
    mode: PortableMode, x: Tensor, dims: Any = None, keepdim: bool = False, **_: Any
) -> Tensor:
    return exact.total(x, range(x.dim()) if dims is None else dims, keepdim)


def _mean(
    mode: PortableMode, x: Tensor, dims: Any = None, keepdim: bool = False, **_: Any
) -> Tensor:
    return exact.mean(x, range(x.dim()) if dims is None else dims, keepdim)


def _of_one(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda mode, x: function(x)


def _in_place(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda mode, x: x.copy_(function(x))


CREATED = frozenset(["pow"])  # of a number to a tensor: the tensor is not always the first
REPLACED: Mapping[str, Callable[..., Any]] = {
    "add": _add,
    "add_": _add_,
    "sub": _sub,
    "sub_": _sub_,
    "rsub": _rsub,
    "addcmul": _addcmul,
    "mm": PortableMode.product,
    "bmm": PortableMode.product,
    "matmul": PortableMode.product,
    "linear": _linear,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "pow": _pow,
    "native_layer_norm": _layer_norm,
    "layer_norm": lambda mode, x, shape, weight=None, bias=None, epsilon=1e-5, *_: _layer_norm(
        mode, x, shape, weight, bias, epsilon
    )[0],
    "rms_norm": _rms_norm,
    "_fused_rms_norm": lambda mode, *args: (_rms_norm(mode, *args), None),
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _flash,
    "_softmax": lambda mode, x, dim, *_: exact.softmax(x, dim),
    "softmax": lambda mode, x, dim, *_: exact.softmax(x, dim),
    "sum": _sum,
    "mean": _mean,
    "gelu": lambda mode, x, approximate="none": exact.gelu(x, approximate),
    "silu": _of_one(lambda x: x * exact.sigmoid(x)),
    "rsqrt": _of_one(lambda x: 1 / x.sqrt()),
    "exp": _of_one(exact.exp),
    "exp_": _in_place(exact.exp),
    "log": _of_one(exact.log),
    "log_": _in_place(exact.log),
    "sigmoid": _of_one(exact.sigmoid),
    "tanh": _of_one(exact.tanh),
    "erf": _of_one(exact.erf),
    "sin": _of_one(exact.sin),
    "cos": _of_one(exact.cos),
}
