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


def accounts(data: bytes, packed: Compressed, module: nn.Module | None) -> Iterator[str]:
    """One line for each way to count, and for each other compressor.

    `module` is the model whose weights a receiver needs; None: it was trained from scratch.
    """
    rows = {"compressed file": packed.size}
    if module is not None:
        weights, in_int8 = weights_size(module)
        rows["and weights"] = packed.size + weights
        rows["and weights in int8"] = packed.size + min(weights, in_int8)
    rows |= peer_sizes(data)
    for name, size in rows.items():
        yield f"{name:20} {size:12,} bytes  {8 * size / max(1, len(data)):8.4f} bits per byte"
    yield (
        "the first line compares with the others if the receiver has the model; if not, the lines "
        "with weights do"
        if module is not None
        else "no weights are shipped, so the first line compares with the others"
    )


def falling(packed: Compressed) -> Iterator[str]:
    """Bits per byte of each 100 KB, for a model that learns."""
    if packed.header.online is None:
        return
    before, bits = 0, 0
    for place, total in packed.curve:
        yield f"{before:12,} to {place:12,} bytes: {(total - bits) / (place - before):.4f} bits"
        before, bits = place, total
