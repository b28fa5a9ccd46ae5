"""`torch.compile` with a way back: where it fails, a run goes on without it and says so.

Only the loss is compiled and never the model itself, so no parameter gets another name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from clearformer.kernels.vocabulary_loss import in_chunks, summed_in_chunks
from clearformer.train.step import Loss

WORTH_FROM_MINUTES = 15  # compiling takes about a minute and gains some percent
# What a device does when nothing is known of it but its kind: two cores, a middling GPU.
OPERATIONS_A_MINUTE = {"cpu": 60 * 2e11, "cuda": 60 * 3e13, "mps": 60 * 3e12}


def pays(model: nn.Module, minutes: float | None, tokens: int) -> bool:
    """Whether compiling is worth its time: in a run of so many minutes, or else tokens."""
    if shutil.which("c++") is None:
        return False
    if minutes is None:
        # The usual count of six operations a weight and token.
        weights = sum(each.numel() for each in model.parameters())
        kind = next(model.parameters()).device.type
        minutes = 6 * weights * tokens / OPERATIONS_A_MINUTE.get(kind, 1e15)
    return minutes >= WORTH_FROM_MINUTES


def compiled(model: Any, say: Callable[[str], None] = print, **how: Any) -> Loss:
    """The model's loss compiled at its first call; as it is, if that does not work."""
    # Loaded only now: it takes a second, and most runs compile nothing.
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

    _leave_chunks_alone(model)
    loss: Loss = model.loss
    attempt: Loss | None = torch.compile(loss, **how)

    def either(*arguments: Any) -> Any:
        nonlocal attempt
        if attempt is not None:
            try:
                return attempt(*arguments)
            except (TorchDynamoException, CppCompileError, InvalidCxxCompiler) as problem:
                reason = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
                say(f"note: torch.compile failed ({reason:.100}): the run goes on without it")
                attempt = None
        return loss(*arguments)

    return either


def _leave_chunks_alone(model: Any) -> None:
    """The loop over chunks of a large vocabulary is not compiled."""
    # It brings its own gradient, and unrolled it would be compiled once for each chunk.
    beside = partial(in_chunks, summed=torch.compiler.disable(summed_in_chunks))
    for head in model.modules():
        if getattr(head, "vocabulary_loss", None) is in_chunks:
            head.vocabulary_loss = beside
