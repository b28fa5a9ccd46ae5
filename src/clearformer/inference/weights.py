"""The forms of a model's weights for inference, by their names."""

from collections.abc import Callable, Mapping
from typing import get_args

from torch import nn

from clearformer.arguments import Weights
from clearformer.inference import int4, int8

WEIGHTS: tuple[str, ...] = get_args(Weights)
# In place; what is not here needs no change.
QUANTIZERS: Mapping[str, Callable[[nn.Module], nn.Module]] = {
    "int8": int8.quantize,
    "int4": int4.quantize,
}
