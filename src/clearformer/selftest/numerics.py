"""G11, G17 and G19: gradient accumulation, memory of attention, and precision of the devices."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.builder import build
from clearformer.config import Dropout
from clearformer.core.heads import IGNORE
from clearformer.core.masks import Mask
from clearformer.core.model import Batch
from clearformer.core.patterns import Causal
from clearformer.families import preset
from clearformer.kernels.fast import fast
from clearformer.selftest import processes
from clearformer.selftest.processes import require
from clearformer.training import microbatch

TINY: dict[str, Any] = {
    "vocabulary": 37, "length": 16, "layers": 2, "width": 32, "heads": 4, "hidden": 64,
}  # fmt: skip
TOLERANCE = 1e-6


def gradients(workdir: Path, *, cuts: Sequence[int]) -> str:
    """G11: the gradient of a padded batch, at once and accumulated over parts."""
    config = replace(preset("gpt2"), **TINY)
    model = build(config, seed=0).double().train(False)
    batch = _padded(config.vocabulary)
    reference = _gradient(model, batch, 1)
    worst = max(_difference(_gradient(model, batch, parts), reference) for parts in cuts)
    require(worst <= TOLERANCE, f"gradients differ by {worst:.1e}")
    naive = _difference(_naive(model, batch, 8), reference)
    require(naive > 1e-2, f"the control, a mean of means, differs by {naive:.1e} only")
    parts = "/".join(map(str, cuts))
    return f"accumulation {parts}: {worst:.0e}; a mean of means would be off by {naive:.0%}"


def _padded(vocabulary: int) -> Batch:
    """Eight rows of very different lengths."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocabulary, (8, 16), generator=generator)
    lengths = torch.tensor([16, 1, 3, 14, 2, 1, 9, 1])
    attention_mask = torch.arange(16) < lengths[:, None]
    return Batch(tokens, torch.where(attention_mask, tokens.roll(-1, 1), IGNORE), attention_mask)


def _gradient(model: Any, batch: Batch, parts: int) -> Tensor:
    model.zero_grad()
    counts = microbatch.count_targets(batch)
    for part in microbatch.split(batch, parts, torch.device("cpu")):
        sums, _ = model.loss(part)
        (sums / counts).sum().backward()
    return _flat(model)


def _naive(model: Any, batch: Batch, parts: int) -> Tensor:
    """The mean of the parts' means: the wrong way, as a control."""
    model.zero_grad()
    for part in microbatch.split(batch, parts, torch.device("cpu")):
        sums, counts = model.loss(part)
        (sums / counts / parts).sum().backward()
    return _flat(model)


def _flat(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def _difference(one: Tensor, other: Tensor) -> float:
    return ((one - other).norm() / other.norm()).item()


def memory(workdir: Path, *, length: int) -> str:
    """G17: the memory of attention grows linearly with the length, backward pass included."""
    once, twice = (processes.call(_attention_peak, n) for n in (length, 2 * length))
    ratio = twice / once
    require(ratio <= 2.2, f"{2 * length} tokens take {ratio:.2f} times the memory of {length}")
    once, twice = once / 2**20, twice / 2**20
    return f"{length:,} tokens {once:.0f} MiB, {2 * length:,} {twice:.0f} MiB: {ratio:.2f} times"


def _attention_peak(length: int) -> int:
    """The peak memory of causal attention, forward and backward."""
    torch.set_num_threads(1)
    _attend(64)  # initializes the libraries
    before = processes.peak_memory()
    _attend(length)
    return max(processes.peak_memory() - before, 1)


def _attend(length: int) -> None:
    q, k, v = (torch.randn(1, 8, length, 64, requires_grad=True) for _ in range(3))
    fast(q, k, v, Mask(Causal()), None, 0.0).sum().backward()


def float32(workdir: Path, *, models: Sequence[str]) -> str:
    """G19: gradients in float32 on every device, against float64."""
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda"))
    if torch.backends.mps.is_available():
        devices.append(torch.device("mps"))
    worst = 0.0
    for name in models:
        key_heads: dict[str, Any] = {"key_heads": 2} if "modern" in name else {}
        config = replace(preset(name), **TINY, **key_heads, dropout=Dropout())
        exact = build(config, seed=0).double()
        batch = _padded(config.vocabulary)
        reference = _gradient(exact, batch, 1)
        for device in devices:
            model = copy.deepcopy(exact).float().to(device)
            moved = microbatch.split(batch, 1, device)[0]
            actual = _gradient(model, moved, 1).cpu().double()
            worst = max(worst, _difference(actual, reference))
    require(worst <= 1e-4, f"gradients in float32 differ by {worst:.1e}, more than 1e-04")
    return f"{', '.join(map(str, devices))}: gradients within {worst:.0e} of float64"
