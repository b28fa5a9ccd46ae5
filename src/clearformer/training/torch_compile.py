"""torch.compile of the loss, with a fallback: a run continues without it if it fails.

Only the loss is compiled, not the model, so that no parameter changes its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from clearformer.kernels.vocabulary_loss import in_chunks, summed_in_chunks
from clearformer.training.step import Loss

MIN_MINUTES = 15  # compiling takes about a minute and gains some percent
# Assumed of a device by its type: two cores, a mid-range GPU.
OPERATIONS_PER_MINUTE = {"cpu": 60 * 2e11, "cuda": 60 * 3e13, "mps": 60 * 3e12}


def pays(model: nn.Module, minutes: float | None, tokens: int) -> bool:
    """Whether compiling is worth its time in a run of so many minutes, or else tokens."""
    if shutil.which("c++") is None:
        return False
    if minutes is None:
        # Six operations per weight and token.
        weights = sum(each.numel() for each in model.parameters())
        kind = next(model.parameters()).device.type
        minutes = 6 * weights * tokens / OPERATIONS_PER_MINUTE.get(kind, 1e15)
    return minutes >= MIN_MINUTES


def compiled(model: Any, say: Callable[[str], None] = print, **options: Any) -> Loss:
    """The model's loss, compiled at its first call; uncompiled, if that fails."""
    # Imported here: it takes a second, and most runs compile nothing.
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

    _exclude_chunks(model)
    loss: Loss = model.loss
    attempt: Loss | None = torch.compile(loss, **options)

    def either(*arguments: Any) -> Any:
        nonlocal attempt
        if attempt is not None:
            try:
                return attempt(*arguments)
            except (TorchDynamoException, CppCompileError, InvalidCxxCompiler) as problem:
                reason = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
                say(f"note: torch.compile failed ({reason:.100}): the run continues without it")
                attempt = None
        return loss(*arguments)

    return either


def _exclude_chunks(model: Any) -> None:
    """Exclude the loop over chunks of a large vocabulary, which has its own gradient.

    Unrolled it would be compiled once for each chunk.
    """
    uncompiled = partial(in_chunks, summed=torch.compiler.disable(summed_in_chunks))
    for head in model.modules():
        if getattr(head, "vocabulary_loss", None) is in_chunks:
            head.vocabulary_loss = uncompiled
