"""Lessons that need no model: the scaling of scores, sparse patterns, and segment memory.

Axes: N numbers or positions, D head width, L layers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from clearformer.core.patterns import Causal, Fixed, Full, Local, Pattern, Strided
from clearformer.explore import arrays
from clearformer.explore.reach import reach, reach_with_memory
from clearformer.explore.stages import entropy
from clearformer.http_server.errors import bad_field

BINS = 40


def scaling(d: int, n: int, seed: int) -> dict[str, Any]:
    """Scores of random queries and keys of width d, raw and divided by the square root of d."""
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(n, d, generator=generator) for _ in range(2))  # each (N, D)
    raw = q @ k.T  # (N, N)
    return {"d": d, "n": n, "seed": seed, "raw": _spread(raw), "scaled": _spread(raw / d**0.5)}


def _spread(scores: Tensor) -> dict[str, Any]:
    bound = float(scores.abs().max())
    counts = torch.histc(scores, BINS, -bound, bound)
    edges = torch.linspace(-bound, bound, BINS + 1)
    weights = scores.softmax(-1)
    return {
        "histogram": {"edges": edges.tolist(), "counts": counts.int().tolist()},
        "sd": float(scores.std()),
        "largest": float(weights.amax(-1).mean()),
        "entropy": float(entropy(weights).mean()),
    }


PATTERNS = ("full", "causal", "local", "strided", "fixed")


def pattern(kind: str, stride: int, summary: int) -> Pattern:
    """A pattern by name; the sparse ones are causal."""
    if kind == "fixed" and summary > stride:
        raise bad_field("summary", f"summary is {summary}, but a block has {stride} positions")
    return {
        "full": Full(),
        "causal": Causal(),
        "local": Causal() & Local(stride),
        "strided": Causal() & (Local(stride) | Strided(stride)),
        "fixed": Causal() & Fixed(stride, min(summary, stride)),
    }[kind]


def patterns(kind: str, n: int, stride: int, layers: int, summary: int) -> dict[str, Any]:
    """Which keys a query attends to, and which inputs it depends on after each layer."""
    chosen = pattern(kind, stride, summary)
    table = chosen.table(n, n)
    reached = torch.stack([reach([chosen] * count, n) for count in range(1, layers + 1)])
    return {
        "kind": kind,
        "n": n,
        "stride": stride,
        "mask": arrays.flags(table),
        "edges": int(table.sum()),
        "causal_edges": n * (n + 1) // 2,
        "all_edges": n * n,
        "reach": arrays.flags(reached),  # (L, N, N)
        "counts": [[int(count) for count in layer.sum(-1)] for layer in reached],
    }


def memory(segment: int, memory: int, layers: int, segments: int) -> dict[str, Any]:
    """How far back the first token of the last segment depends on the text, by layer."""
    total = segments * segment
    reach_back, rows = [], []
    for count in range(1, layers + 1):
        table = reach_with_memory([Causal()] * count, segment, memory)  # (T, K)
        before = table[:, :-segment] if table.shape[1] > segment else table[:, :0]
        farthest = before.any(0).nonzero()
        reach_back.append(before.shape[1] - int(farthest[0]) if len(farthest) else 0)
        row = torch.zeros(total, dtype=torch.bool)
        reached = table[0][-total:]
        row[total - len(reached) :] = reached
        rows.append(row)
    return {
        "segment": segment,
        "memory": memory,
        "layers": layers,
        "segments": segments,
        "reach": reach_back,
        "timeline": arrays.flags(torch.stack(rows)),  # (L, segments * segment)
        "starts": list(range(0, total, segment)),
    }


def similarity(vectors: Tensor) -> Tensor:
    """Cosines of all pairs of vectors (N, E): (N, N), exactly symmetric, 1 on the diagonal."""
    unit = vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    table = unit @ unit.T
    table = (table + table.T) / 2
    return table.fill_diagonal_(1.0).clamp(-1.0, 1.0)


def angles(count: int, width: int, base: float = 10_000.0) -> Tensor:
    """Cosines and sines of positions, as in rotary and relative schemes: (N, width)."""
    steps = torch.arange(0, width, 2, dtype=torch.float32)
    angles = torch.arange(count)[:, None] * torch.exp(-math.log(base) * steps / width)
    return torch.cat((angles.cos(), angles.sin()), dim=-1)
