"""Half precision: products in 16 bits where the machine is quicker at it, the rest in float32.

Weights, their updates and the loss keep 32 bits; autocast makes 16-bit copies for the matrix
products alone. bfloat16 has the range of float32, so gradients need no scaling; float16 has
three bits more for the fraction and needs it (scaling.py).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from clearformer.train.step import Loss

Precision = Literal["float32", "bfloat16", "float16"]
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve(precision: Precision | Literal["auto"], device: torch.device) -> Precision:
    """What "auto" means on this machine: bfloat16 where the hardware multiplies in it."""
    if precision != "auto":
        return precision
    return "bfloat16" if multiplies_in_half(device) else "float32"


def multiplies_in_half(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware; emulated ones are slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        can = torch.cpu.get_capabilities()
        return bool(can.get("avx512_bf16") or can.get("amx_bf16"))
    return False


def context(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Where a forward pass runs in this precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, HALVES[precision])


def under(loss: Loss, precision: Precision, device: torch.device) -> Loss:
    """The same loss, its products in this precision."""

    def in_context(*arguments: Any) -> Any:
        with context(precision, device):
            return loss(*arguments)

    return in_context
