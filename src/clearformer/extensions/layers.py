"""Activations and a norm that later architectures use."""

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

gelu_tanh = partial(F.gelu, approximate="tanh")  # the approximation that GPT-2 was trained with


def squared_relu(x: Tensor) -> Tensor:
    """max(0, x)²."""
    return F.relu(x).square()


class RMSNorm(nn.RMSNorm):
    """Divide by the root of the mean square; the scale follows its input's precision."""

    def forward(self, x: Tensor) -> Tensor:
        # Under autocast queries are 16 bits wide and the scale 32; torch is slow on the mixture.
        return F.rms_norm(x, list(self.normalized_shape), self.weight.to(x.dtype), self.eps)
