"""`torch.compile` with a way back: where it fails, a run goes on without it and says so.

Only the loss is compiled and never the model itself, so no parameter gets another name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from clearformer.train.step import Loss


def compiled(loss: Loss, say: Callable[[str], None]) -> Loss:
    """The loss compiled at its first call; as it is, if that does not work."""
    # Loaded only now: it takes a second, and most runs compile nothing.
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

    attempt: Loss | None = torch.compile(loss)

    def either(batch: Any) -> Any:
        nonlocal attempt
        if attempt is not None:
            try:
                return attempt(batch)
            except (TorchDynamoException, CppCompileError, InvalidCxxCompiler) as problem:
                reason = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
                say(f"note: torch.compile failed ({reason:.100}): the run goes on without it")
                attempt = None
        return loss(batch)

    return either
