"""Traces: every torch operation of a forward pass, with its module and line of source.

A `Recorder` is a torch function mode. It sees operations at the level at which models are written
(softmax, matmul, masked_fill, scaled_dot_product_attention), with their arguments.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from clearformer.verification.findings import Place

MAX_VALUES = 1 << 20  # larger results are not copied: they are weights, not activations
# Spellings of one operation.
SAME = {
    "truediv": "div",
    "itruediv": "div",
    "idiv": "div",
    "divide": "div",
    "imul": "mul",
    "multiply": "mul",
    "rmul": "mul",
    "iadd": "add",
    "radd": "add",
    "isub": "sub",
    "rsub": "rsub",
    "subtract": "sub",
    "rmatmul": "matmul",
    "softmax": "softmax",
    "expand_as": "expand",
    "sdpa": "scaled_dot_product_attention",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "movedim": "permute",
    "t": "transpose",
    "true_divide": "div",
    "type_as": "to",
    "float": "to",
    "double": "to",
    "half": "to",
    "bfloat16": "to",
    "type": "to",
    "rtruediv": "rdiv",
    "feature_dropout": "dropout",
    "alpha_dropout": "dropout",
    "index_put": "setitem",
    "masked_scatter": "setitem",
    "special_softmax": "softmax",
    "square": "pow",
    "rpow": "rpow",
}


@dataclass(frozen=True)
class Op:
    """One operation: its name, arguments and result, and where it was called."""

    index: int
    name: str
    place: Place
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Tensor  # the very tensor, to follow it by its identity
    value: Tensor | None  # a copy, since models write in place

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor among the arguments, in order."""
        return list(_tensors((self.args, tuple(self.kwargs.values()))))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


class Trace:
    """The operations of one forward pass, in order."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._producers: dict[int, list[Op]] = {}

    def add(self, op: Op) -> None:
        self.ops.append(op)
        self._producers.setdefault(id(op.out), []).append(op)

    def producer(self, tensor: Tensor, before: int) -> Op | None:
        """The last operation before `before` that made or changed this tensor."""
        made = self._producers.get(id(tensor), ())
        return next((op for op in reversed(made) if op.index < before), None)

    def named(self, *names: str) -> list[Op]:
        return [op for op in self.ops if op.name in names]

    def users(self, op: Op) -> list[Op]:
        """The operations that take the result of this one."""
        return [
            other
            for other in self.ops[op.index + 1 :]
            if any(each is op.out for each in other.tensors)
        ]


class Recorder(TorchFunctionMode):
    """Records a forward pass of `model` into `trace`."""

    def __init__(self, model: nn.Module, max_values: int = MAX_VALUES) -> None:
        super().__init__()
        self.trace = Trace()
        self.max_values = max_values
        self._names = {id(module): name for name, module in model.named_modules()}
        self._stack: list[str] = []

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            with self:  # its operations are recorded, not the call
                return _open_body(func)(*args, **kwargs)
        result = func(*args, **kwargs)
        name = operation_name(func)
        out = next(_tensors(result if name != "setitem" else tuple(args)), None)
        if out is not None and not name.startswith("get_"):
            self._record(name, tuple(args), kwargs, out)
            if isinstance(result, list | tuple) and name != "setitem":
                for piece in list(_tensors(result))[1:]:  # chunk, split, unbind
                    self._record(name, tuple(args), kwargs, piece)
        return result

    def _record(self, name: str, args: tuple[Any, ...], kwargs: Any, out: Tensor) -> None:
        small = out.numel() <= self.max_values
        value = out.detach().clone() if small and not out.is_meta else None
        place = Place(self._stack[-1] if self._stack else "", caller())
        self.trace.add(Op(len(self.trace.ops), name, place, args, dict(kwargs), out, value))

    @contextmanager
    def recording(self) -> Iterator[Trace]:
        """Record what runs inside."""
        before = register_module_forward_pre_hook(self._enter)
        after = register_module_forward_hook(self._leave, always_call=True)
        try:
            with self:
                yield self.trace
        finally:
            before.remove()
            after.remove()

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        self._stack.append(self._names.get(id(module), self._stack[-1] if self._stack else ""))

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self._stack:
            self._stack.pop()


class InsideRecorder(Recorder):
    """Records what the model computes in this thread, and nothing else that runs meanwhile."""

    def __init__(self, model: nn.Module, max_values: int) -> None:
        super().__init__(model, max_values)
        self.model = model
        self._thread = get_ident()
        self._paused = False

    def copied(self, x: Tensor) -> Tensor:
        """A copy, which is no operation of the model."""
        self._paused = True
        try:
            return x.detach().clone()
        finally:
            self._paused = False

    @contextmanager
    def recording(self) -> Iterator[Trace]:
        """Record what the model computes inside; what is compiled runs as plain code."""
        with ExitStack() as stack:
            for module in self.model.modules():
                stack.callback(module.register_forward_pre_hook(self._enter).remove)
                hook = module.register_forward_hook(self._leave, always_call=True)
                stack.callback(hook.remove)
            stack.enter_context(uncompiled())
            stack.enter_context(self)
            yield self.trace

    def _record(self, name: str, args: tuple[Any, ...], kwargs: Any, out: Tensor) -> None:
        if self._stack and not self._paused:
            super()._record(name, args, kwargs, out)

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        if get_ident() == self._thread:
            super()._enter(module, inputs)

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if get_ident() == self._thread:
            super()._leave(module, inputs, output)


def uncompiled() -> AbstractContextManager[object]:
    """Inside, what torch.compile made runs as the plain code."""
    # Nothing is compiled where this part of torch is not imported, which takes a second.
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


def _open_body(function: Any) -> Any:
    """The function without its dispatch to modes, so that its own operations are seen."""
    names = {**function.__globals__, "has_torch_function": lambda *_: False}
    opened = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    opened.__kwdefaults__ = function.__kwdefaults__
    return opened


def operation_name(func: Any) -> str:
    """One name for all spellings: `__itruediv__`, `div_` and `true_divide` are div."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return f"get_{getattr(func.__self__, '__name__', '')}"
    name = name.strip("_")
    return SAME.get(name, name)


_OUTSIDE: dict[str, bool] = {}
_LIBRARIES = (
    "/torch/",
    "/einops/",
    "/einx/",
    "/clearformer/verification/",
    "<frozen",
    "/contextlib.",
)


def caller() -> str:
    """file:line of the code that called torch: the first frame outside torch and this package."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_outside(file):
            return f"{'/'.join(file.split('/')[-2:])}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def is_outside(file: str) -> bool:
    """Whether a file is neither torch nor this package, so that its lines are the model's."""
    known = _OUTSIDE.get(file)
    if known is None:
        known = _OUTSIDE[file] = not any(each in file for each in _LIBRARIES)
    return known
