"""How far influence reaches: which inputs can change which outputs, after all layers.

An output is computed from what it sees in the last layer, which was computed from what that
saw in the layer before, and so on down to the inputs. The residual connection lets every
position reach itself in each layer.

Axes: T tokens, K positions with those of the memory, N layers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearformer.core.patterns import Local, Pattern


def reach(patterns: Sequence[Pattern], length: int) -> Tensor:
    """Which inputs can influence which outputs after one layer for each pattern: (T, T).

    A path may take one edge a layer, so layers multiply as boolean matrices (eq. 26).
    """
    return reach_with_memory(patterns, length, memory=0)


def reach_with_memory(patterns: Sequence[Pattern], length: int, memory: int) -> Tensor:
    """The same for the last segment of `length` positions, before which a layer remembers.

    A layer sees the last `memory` hidden states that entered it in earlier segments. Those are
    computed from their own segment and memory in turn, so influence goes back by up to `memory`
    positions a layer: (T, K), for all K inputs that N layers could reach.
    """
    layers = len(patterns)
    segments = -(-layers * memory // length) + 1 if memory else 1
    keys = segments * length
    reached = torch.eye(keys)  # floats: there is no product of booleans
    for pattern in patterns:
        step = torch.zeros(keys, keys, dtype=torch.bool)
        for start in range(0, keys, length):
            oldest = max(0, start - memory)
            stop = start + length
            # Positions count from the oldest state remembered, as they do in the model.
            sees = (pattern | Local(1)).table(length, stop - oldest)
            step[start:stop, oldest:stop] = sees
        reached = (step.float() @ reached > 0).float()
    return reached[keys - length :] > 0  # (T, K)
