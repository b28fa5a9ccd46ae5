"""Time and memory of attention by sequence length: dense and sparse, forward and backward.

    python benchmarks/attention.py [--most 32768] [--rounds 3]

Batch 1, 8 heads, width 256, strides of about the root of the length. Each measurement is a
process of its own, so that its peak memory (VmHWM, minus what it had before the first pass) is
its own. Exponents are slopes of a straight line through the logarithms.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time

import torch

from clearformer.core.kernels import Kernel, explicit
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Fixed, Local, Pattern, Strided
from clearformer.kernels.blockwise import blockwise
from clearformer.kernels.fast import fast

HEADS, WIDTH = 8, 256
KERNELS: dict[str, Kernel] = {"explicit": explicit, "fused": fast, "blockwise": blockwise}
# Contestant: kernel, pattern for a stride, longest sequence (explicit keeps t x t tables of
# 8 heads: past 8,192 they do not fit into the memory of an ordinary machine).
CONTESTANTS = {
    "dense, explicit": ("explicit", "causal", 8192),
    "dense, fused": ("fused", "causal", 16_384),
    "strided, blockwise": ("blockwise", "strided", 10**9),
    "fixed, blockwise": ("blockwise", "fixed", 10**9),
}


def pattern_of(name: str, stride: int) -> Pattern:
    return {
        "causal": Causal(),
        "strided": Causal() & (Local(stride) | Strided(stride)),
        "fixed": Causal() & Fixed(stride, 1),
    }[name]


def peak() -> int:
    """Peak memory of this process in bytes."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def measure(kernel: Kernel, pattern: Pattern, length: int, rounds: int) -> dict[str, float]:
    """Seconds of a forward and backward pass (the fastest of some), and its peak memory."""
    leaves = [torch.randn(1, HEADS, length, WIDTH // HEADS, requires_grad=True) for _ in range(3)]
    q, k, v = leaves
    mask = Mask(pattern)
    # Libraries are loaded and the threads started by a small pass first.
    kernel(q[:, :, :256], k[:, :, :256], v[:, :, :256], mask, None, 0.0).sum().backward()
    before = peak()
    seconds = []
    for _ in range(rounds):
        for leaf in leaves:
            leaf.grad = None
        start = time.perf_counter()
        kernel(q, k, v, mask, None, 0.0).sum().backward()
        seconds.append(time.perf_counter() - start)
    # The first round finds the tiles, which later ones (and all layers) share.
    return {"first": seconds[0], "seconds": min(seconds), "memory": peak() - before}


def slope(points: list[tuple[float, float]]) -> float:
    x = [math.log(length) for length, _ in points]
    y = [math.log(value) for _, value in points]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--most", type=int, default=32_768, help="the longest sequence")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--only", nargs=2, metavar=("NAME", "LENGTH"), help=argparse.SUPPRESS)
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    if given.only:
        kernel, name, _ = CONTESTANTS[given.only[0]]
        length = int(given.only[1])
        pattern = pattern_of(name, round(math.sqrt(length)))
        print(json.dumps(measure(KERNELS[kernel], pattern, length, given.rounds)))
        return
    lengths = [n for n in (1024 * 2**i for i in range(20)) if n <= given.most]
    found: dict[str, dict[int, dict[str, float]]] = {name: {} for name in CONTESTANTS}
    print(f"{'':20} {'length':>7} {'seconds':>9} {'first':>9} {'peak MiB':>9}")
    for length in lengths:  # all contestants at one length, so that a busy hour hits them alike
        for name, (_, _, longest) in CONTESTANTS.items():
            if length > longest:
                continue
            command = [sys.executable, __file__, "--only", name, str(length)]
            command += ["--rounds", str(given.rounds), "--threads", str(given.threads)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            one = found[name][length] = json.loads(done.stdout)
            print(
                f"{name:20} {length:7,} {one['seconds']:9.3f} {one['first']:9.3f} "
                f"{one['memory'] / 2**20:9.1f}",
                flush=True,
            )
    print(f"\n{'':20} {'exponent of time':>17} {'of memory':>10}")
    fits = {}
    for name, by_length in found.items():
        fits[name] = {
            what: slope([(n, one[what]) for n, one in by_length.items()])
            for what in ("seconds", "memory")
        }
        print(f"{name:20} {fits[name]['seconds']:17.2f} {fits[name]['memory']:10.2f}")
    compare(found)


def compare(found: dict[str, dict[int, dict[str, float]]]) -> None:
    """At the longest length that dense fused attention ran at."""
    length = max(found["dense, fused"])
    explicit = found["dense, explicit"]
    longest = max(explicit)
    # Its tables grow with the square; what could not be run is computed from what could.
    dense_memory = explicit[longest]["memory"] * (length / longest) ** 2
    how = "measured" if longest == length else f"4x the memory for 2x the length, from {longest:,}"
    print(f"\nat {length:,}:")
    for name in ("strided, blockwise", "fixed, blockwise"):
        one = found[name][length]
        faster = found["dense, fused"][length]["seconds"] / one["seconds"]
        less = dense_memory / one["memory"]
        print(
            f"  {name}: {faster:.1f}x as fast as dense fused (at least 10 wanted), 1/{less:.0f} "
            f"of the memory of dense explicit ({how}; at least 20 wanted)"
        )


if __name__ == "__main__":
    main()
