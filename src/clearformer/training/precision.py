"""Mixed precision: matrix products in 16 bits where the hardware has them, the rest in float32.

Weights, updates and the loss are float32; autocast makes 16-bit copies for products. bfloat16 has
the range of float32, so that gradients need no scaling; float16 needs it (loss_scaling.py).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from clearformer.training.step import Loss

Precision = Literal["float32", "bfloat16", "float16"]
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve(precision: Precision | Literal["auto"], device: torch.device) -> Precision:
    """Resolve "auto": bfloat16 where the hardware supports it, else float32."""
    if precision != "auto":
        return precision
    return "bfloat16" if supports_bfloat16(device) else "float32"


def supports_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware; emulated ones are slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        can = torch.cpu.get_capabilities()
        return bool(can.get("avx512_bf16") or can.get("amx_bf16"))
    return False


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Context in which a forward pass runs in this precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, HALVES[precision])


def autocast_loss(loss: Loss, precision: Precision, device: torch.device) -> Loss:
    """The loss with its products in this precision."""

    def in_context(*arguments: Any) -> Any:
        with autocast(precision, device):
            return loss(*arguments)

    return in_context
