"""G11, G17 and G19: gradients that do not depend on how a batch is cut, memory that grows with the
length and not its square, and a device that computes what float64 computes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.build import build
from clearformer.config import Dropout
from clearformer.core.heads import IGNORE
from clearformer.core.masks import Mask
from clearformer.core.model import Batch
from clearformer.core.patterns import Causal
from clearformer.families import preset
from clearformer.kernels.fast import fast
from clearformer.selftest import processes
from clearformer.selftest.processes import Missed, require
from clearformer.train import microbatch

TINY: dict[str, Any] = {
    "vocabulary": 37, "length": 16, "layers": 2, "width": 32, "heads": 4, "hidden": 64,
}  # fmt: skip
EXACT = 1e-6


def gradients(place: Path, *, cuts: Sequence[int]) -> str:
    """G11: the gradient of a padded batch, whole and in parts; and that a naive mean would show."""
    config = replace(preset("gpt2"), **TINY)
    model = build(config, seed=0).double().train(False)
    batch = _padded(config.vocabulary)
    whole = _gradient(model, batch, 1)
    worst = max(_difference(_gradient(model, batch, parts), whole) for parts in cuts)
    require(worst <= EXACT, f"gradients differ by {worst:.1e}")
    naive = _difference(_naive(model, batch, 8), whole)
    require(naive > 1e-2, f"the control, a mean of means, differs by {naive:.1e} only")
    parts = "/".join(map(str, cuts))
    return f"accumulation {parts}: {worst:.0e}; a mean of means would be off by {naive:.0%}"


def _padded(vocabulary: int) -> Batch:
    """Eight rows of very different lengths, and very different targets."""
    chance = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocabulary, (8, 16), generator=chance)
    lengths = torch.tensor([16, 1, 3, 14, 2, 1, 9, 1])
    keep = torch.arange(16) < lengths[:, None]
    return Batch(tokens, torch.where(keep, tokens.roll(-1, 1), IGNORE), keep)


def _gradient(model: nn.Module, batch: Batch, parts: int) -> Tensor:
    model.zero_grad()
    counts = microbatch.counts(batch)
    for part in microbatch.cut(batch, parts, torch.device("cpu")):
        sums, _ = model.loss(part)  # type: ignore[operator]
        (sums / counts).sum().backward()
    return _flat(model)


def _naive(model: nn.Module, batch: Batch, parts: int) -> Tensor:
    """The mean of the parts' means, which is what must not be computed."""
    model.zero_grad()
    for part in microbatch.cut(batch, parts, torch.device("cpu")):
        sums, counts = model.loss(part)  # type: ignore[operator]
        (sums / counts / parts).sum().backward()
    return _flat(model)


def _flat(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def _difference(one: Tensor, other: Tensor) -> float:
    return ((one - other).norm() / other.norm()).item()


def memory(place: Path, *, length: int) -> str:
    """G17: twice as many tokens need about twice the memory, backward pass included."""
    once, twice = (processes.ask(_attention_peak, n) for n in (length, 2 * length))
    ratio = twice / once
    require(ratio <= 2.2, f"{2 * length} tokens take {ratio:.2f} times the memory of {length}")
    mebibyte = 2**20
    return (
        f"{length:,} tokens {once / mebibyte:.0f} MiB, {2 * length:,} "
        f"{twice / mebibyte:.0f} MiB: {ratio:.2f} times"
    )


def _attention_peak(length: int) -> int:
    """Memory that causal attention over so many tokens adds, forward and backward."""
    torch.set_num_threads(1)
    _attend(64)  # what the libraries take once
    before = processes.peak_memory()
    _attend(length)
    return max(processes.peak_memory() - before, 1)


def _attend(length: int) -> None:
    q, k, v = (torch.randn(1, 8, length, 64, requires_grad=True) for _ in range(3))
    fast(q, k, v, Mask(Causal()), None, 0.0).sum().backward()


def device(place: Path, *, models: Sequence[str]) -> str:
    """G19: losses and gradients in float32, here and on every device, against float64."""
    found = [torch.device("cpu")]
    if torch.cuda.is_available():
        found.append(torch.device("cuda"))
    if torch.backends.mps.is_available():
        found.append(torch.device("mps"))
    worst = 0.0
    for name in models:
        own: dict[str, Any] = {"key_heads": 2} if "modern" in name else {}
        config = replace(preset(name), **TINY, **own, dropout=Dropout())
        exact = build(config, seed=0).double()
        batch = _padded(config.vocabulary)
        wanted = _gradient(exact, batch, 1)
        for each in found:
            model = copy.deepcopy(exact).float().to(each)
            got = _gradient(model, _moved(batch, each), 1).cpu().double()
            worst = max(worst, _difference(got, wanted))
    limit = 1e-4
    if worst > limit:
        raise Missed(f"gradients in float32 are off by {worst:.1e}, more than {limit:.0e}")
    return f"{', '.join(map(str, found))}: gradients within {worst:.0e} of float64"


def _moved(batch: Batch, device: torch.device) -> Batch:
    return microbatch.cut(batch, 1, device)[0]
