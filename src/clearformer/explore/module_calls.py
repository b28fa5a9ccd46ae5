"""The last input and output of chosen modules during a forward pass."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Calls(Generic[Name]):
    """Inputs and outputs by the name of the module, each with a batch of one."""

    inputs: dict[Name, Tensor] = field(default_factory=dict)
    outputs: dict[Name, Tensor] = field(default_factory=dict)


@contextmanager
def last_calls(modules: Mapping[Name, nn.Module]) -> Iterator[Calls[Name]]:
    """Record the last call of each module. A model with a memory calls one for each segment."""
    calls: Calls[Name] = Calls()
    hooks = [_hook(name, module, calls) for name, module in modules.items()]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _hook(name: Name, module: nn.Module, calls: Calls[Name]) -> Any:
    def called(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        # Copies: an activation may be in place.
        calls.inputs[name] = arguments[0].detach().clone()
        calls.outputs[name] = output.detach().clone()

    return module.register_forward_hook(called)
