"""Sizes as text compression benchmarks count them: the code alone, and with the weights.

A decoder needs the weights. A receiver that has the model needs the code alone; any other receiver
needs both, as the large text compression benchmark counts a decompressor. General compressors
such as xz need nothing else, so code and weights together are to be compared with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from clearformer.compressor.codec import Compressed
from clearformer.compressor.models import weights_size
from clearformer.compressor.peers import peer_sizes


def sizes(data: bytes, packed: Compressed, module: nn.Module | None) -> dict[str, int]:
    """Bytes by each way to count, and by each other compressor.

    `module` is the model whose weights a receiver needs; None: it was trained from scratch.
    """
    found = {"compressed file": packed.size}
    if module is not None:
        weights, in_int8 = weights_size(module)
        found["with weights"] = packed.size + weights
        found["with weights in int8"] = packed.size + min(weights, in_int8)
    return found | peer_sizes(data)


def accounts(data: bytes, packed: Compressed, module: nn.Module | None) -> Iterator[str]:
    """The `sizes` as lines, and which of them to compare."""
    for name, size in sizes(data, packed, module).items():
        yield f"{name:20} {size:12,} bytes  {8 * size / max(1, len(data)):8.4f} bits per byte"
    yield (
        "the first line compares with the others if the receiver has the model; if not, the lines "
        "with weights do"
        if module is not None
        else "no weights are shipped, so the first line compares with the others"
    )
