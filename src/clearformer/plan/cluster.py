"""Many GPUs on paper: what one holds, how long all of them take, and where it ends.

Nothing here has been measured: a GPU is three numbers that someone gives (memory, operations a
second, the share of these that training reaches). Weights are float32 with a 16-bit copy while
they are used, as in `precision`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from torch import nn

from clearformer.builder import outline
from clearformer.config import AnyModelConfig, RunConfig
from clearformer.plan import footprint
from clearformer.plan.footprint import Footprint
from clearformer.training.recompute import Recompute

TOKENS_PER_PARAMETER = 20  # Hoffmann et al. 2022: about where more data pays as much as more model
LARGEST_BATCH = 2**20  # tokens of a step beyond which a model of this size learns no faster
CONTEXT = 10**9  # bytes that CUDA, its libraries and the communication take on each GPU


@dataclass(frozen=True)
class Gpu:
    """One GPU in three numbers; the defaults are an A100 of 80 GB in bfloat16."""

    memory: int = 80 * 10**9
    teraflops: float = 312.0
    utilisation: float = 0.4


@dataclass(frozen=True)
class OnPaper:
    """A run on some GPUs, distributed in one way."""

    gpus: int
    distribute: Literal["ddp", "fsdp2"]
    rows: int  # sequences at a time on each GPU; 0: not even one fits
    recompute: Recompute
    states: int  # bytes of weights, gradients and optimizer on each GPU
    activations: int
    step_tokens: int  # of all GPUs together
    step_seconds: float
    traffic: int  # bytes that each GPU sends in a step
    days: float

    @property
    def memory(self) -> int:
        return CONTEXT + self.states + self.activations


def on_paper(
    config: RunConfig,
    gpus: int,
    distribute: Literal["ddp", "fsdp2"],
    gpu: Gpu,
    tokens: float | None,
) -> OnPaper:
    """The most sequences that fit on each GPU, without recomputing if that is possible."""
    # A GPU's fused kernel applies dropout to the weights without keeping the table.
    dropout = replace(config.model.dropout, attention=0.0)
    train = replace(config.train, precision="bfloat16", device="cuda")
    config = replace(config, model=replace(config.model, dropout=dropout), train=train)
    choices: tuple[Recompute, ...] = (None, 1)
    for what in choices:
        one, two = _counted(config, 1, what), _counted(config, 2, what)
        states = _states(one, config.model, gpus, distribute)
        each = max(1, two.activations - one.activations)
        room = gpu.memory - CONTEXT - states - one.activations
        rows = 1 + math.floor(room / each) if room >= 0 else 0
        if rows >= 1:
            break
    limit = max(1, LARGEST_BATCH // gpus // config.model.length)
    rows = min(rows, limit)
    step_tokens = max(1, rows) * gpus * config.model.length
    step_seconds = max(1, rows) * one.operations / (gpu.teraflops * 1e12 * gpu.utilisation)
    wanted = TOKENS_PER_PARAMETER * one.parameters if tokens is None else tokens
    # Reduced and gathered again: each GPU sends nearly everything twice; sharded weights are
    # gathered in 16 bits for both passes, and the gradients reduced once.
    share = (gpus - 1) / gpus
    bytes_sent = {"ddp": 2 * one.gradients, "fsdp2": one.weights + one.gradients}[distribute]
    return OnPaper(
        gpus,
        distribute,
        rows,
        what,
        states,
        one.activations + each * max(0, rows - 1),
        step_tokens,
        step_seconds,
        round(share * bytes_sent),
        wanted / step_tokens * step_seconds / 86400,
    )


@lru_cache(maxsize=8)
def _counted(config: RunConfig, rows: int, what: Recompute) -> Footprint:
    return footprint.footprint(config, rows, what, accumulated=True)


def _states(one: Footprint, model: AnyModelConfig, gpus: int, distribute: str) -> int:
    whole = one.weights + one.gradients + one.optimizer + one.average
    if distribute == "ddp" or gpus == 1:
        return whole
    # Two blocks at a time are whole (the one at work, the next one on its way), and what lies
    # outside the blocks.
    lists = [m for m in outline(model).modules() if isinstance(m, nn.ModuleList)]
    blocks = [4 * sum(p.numel() for p in block.parameters()) for each in lists for block in each]
    gathered = 2 * max(blocks) + one.weights - sum(blocks)
    return whole // gpus + min(one.weights, gathered)
