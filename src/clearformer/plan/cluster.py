"""Estimates for training on several GPUs: memory of each GPU, time and network traffic.

Nothing here is measured: a GPU is described by its memory, its peak operations per second and the
share of that peak that training reaches. Weights are float32, with 16-bit copies for the products
(mixed precision).
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

TOKENS_PER_PARAMETER = 20  # compute-optimal according to Hoffmann et al. 2022
MAX_BATCH_TOKENS = 2**20  # larger batches do not make a model of this size learn faster
CUDA_BYTES = 10**9  # memory of CUDA, its libraries and the communication buffers on each GPU


@dataclass(frozen=True)
class Gpu:
    """A GPU; the defaults are an A100 with 80 GB in bfloat16."""

    memory: int = 80 * 10**9
    teraflops: float = 312.0
    utilisation: float = 0.4


@dataclass(frozen=True)
class ClusterEstimate:
    """The estimate for a run on several GPUs with one kind of parallelism."""

    gpus: int
    distribute: Literal["ddp", "fsdp2"]
    rows: int  # sequences per micro-batch on each GPU; 0: not even one fits
    recompute: Recompute
    states: int  # bytes of weights, gradients and optimizer states on each GPU
    activations: int
    step_tokens: int  # over all GPUs
    step_seconds: float
    traffic: int  # bytes that each GPU sends per step
    days: float

    @property
    def memory(self) -> int:
        return CUDA_BYTES + self.states + self.activations


def estimate(
    config: RunConfig,
    gpus: int,
    distribute: Literal["ddp", "fsdp2"],
    gpu: Gpu,
    tokens: float | None,
) -> ClusterEstimate:
    """Estimate a run with the largest micro-batch that fits on each GPU.

    Activations are recomputed only if nothing fits otherwise.
    """
    # A GPU's fused kernel applies attention dropout without storing the attention weights.
    dropout = replace(config.model.dropout, attention=0.0)
    train = replace(config.train, precision="bfloat16", device="cuda")
    config = replace(config, model=replace(config.model, dropout=dropout), train=train)
    options: tuple[Recompute, ...] = (None, 1)
    for recomputed in options:
        one, two = _count(config, 1, recomputed), _count(config, 2, recomputed)
        states = _states(one, config.model, gpus, distribute)
        row_bytes = max(1, two.activations - one.activations)
        free = gpu.memory - CUDA_BYTES - states - one.activations
        rows = 1 + math.floor(free / row_bytes) if free >= 0 else 0
        if rows >= 1:
            break
    rows = min(rows, max(1, MAX_BATCH_TOKENS // gpus // config.model.length))
    step_tokens = max(1, rows) * gpus * config.model.length
    step_seconds = max(1, rows) * one.operations / (gpu.teraflops * 1e12 * gpu.utilisation)
    total_tokens = TOKENS_PER_PARAMETER * one.parameters if tokens is None else tokens
    # DDP: an all-reduce sends nearly every gradient twice. FSDP2: weights are gathered in 16 bits
    # for the forward and the backward pass, and gradients are reduced once.
    share = (gpus - 1) / gpus
    bytes_sent = {"ddp": 2 * one.gradients, "fsdp2": one.weights + one.gradients}[distribute]
    return ClusterEstimate(
        gpus,
        distribute,
        rows,
        recomputed,
        states,
        one.activations + row_bytes * max(0, rows - 1),
        step_tokens,
        step_seconds,
        round(share * bytes_sent),
        total_tokens / step_tokens * step_seconds / 86400,
    )


@lru_cache(maxsize=8)
def _count(config: RunConfig, rows: int, recomputed: Recompute) -> Footprint:
    return footprint.footprint(config, rows, recomputed, accumulated=True)


def _states(one: Footprint, model: AnyModelConfig, gpus: int, distribute: str) -> int:
    whole = one.weights + one.gradients + one.optimizer + one.average
    if distribute == "ddp" or gpus == 1:
        return whole
    # Two blocks are gathered at a time (the current one and the prefetched next one), besides the
    # parameters outside the blocks.
    lists = [m for m in outline(model).modules() if isinstance(m, nn.ModuleList)]
    blocks = [4 * sum(p.numel() for p in b.parameters()) for blocks in lists for b in blocks]
    gathered = 2 * max(blocks) + one.weights - sum(blocks)
    return whole // gpus + min(one.weights, gathered)
