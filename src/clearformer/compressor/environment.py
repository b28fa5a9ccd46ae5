"""Everything outside the model that its numbers depend on: versions, CPU, threads, modes of torch.

Floating-point sums depend on their order, and the order on the libraries, on the instructions of
the CPU, on the number of threads and on the shape of a batch. Encoder and decoder must share all
of it, since decoding needs exactly equal probabilities.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

# Instructions by which torch, oneDNN and MKL choose their kernels.
INSTRUCTIONS = (
    "sse4_2", "avx", "avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512dq", "avx512vl",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "sve",
)  # fmt: skip

_MODE: Any = torch.utils.deterministic  # a module whose attribute is a property


@cache
def cpu() -> str:
    """Architecture, maker, model and vector instructions of the CPU."""
    facts: dict[str, str] = {}
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:  # not Linux
        text = ""
    for line in text.split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    # Cache sizes decide how products are split into blocks, and the model decides cache sizes.
    kind = "/".join(facts.get(key, "?") for key in ("cpu family", "model", "stepping"))
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    known = [name for name in INSTRUCTIONS if name in flags]
    capability = torch.backends.cpu.get_cpu_capability()
    maker = facts.get("vendor_id", platform.processor() or "?")
    return " ".join([platform.machine(), maker, kind, capability, *known])


def coder() -> str:
    """Name and version of the entropy coder, whose rounding of probabilities is part of a file."""
    return f"constriction {version('constriction')}"


@contextmanager
def fixed(threads: int) -> Iterator[None]:
    """Use this many threads and deterministic algorithms inside the context."""
    before = torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    deterministic = torch.get_deterministic_debug_mode()
    fills = _MODE.fill_uninitialized_memory
    try:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")
        # As `use_deterministic_algorithms(True)`, which also loads torch's compiler.
        torch.set_deterministic_debug_mode("error")
        # Deterministic mode would also fill every new tensor, a tenth of a small model's time.
        _MODE.fill_uninitialized_memory = False
        with torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_num_threads(before)
        torch.set_float32_matmul_precision(precision)
        torch.set_deterministic_debug_mode(deterministic)
        _MODE.fill_uninitialized_memory = fills
