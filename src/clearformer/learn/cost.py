"""The cost of an answer: the largest tensor that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Largest(TorchDispatchMode):
    """Notes the memory of each result, in elements: a view counts as what it is a view of."""

    elements = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, Tensor):
                size = each.untyped_storage().nbytes() // each.element_size()
                self.elements = max(self.elements, size)
        return result


def largest_tensor(run: Callable[[], object]) -> int:
    """The elements of the largest tensor that `run()` makes."""
    make: Any = _Largest  # torch does not annotate the initializer of its modes
    with make() as noted:
        run()
    return int(noted.elements)
