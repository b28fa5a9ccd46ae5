"""Pictures: a model of images, wrapped so that it takes its patches as a sequence of vectors.

Axes: B batch, T patches, C channels, P patch size, S image size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

SIZES = ("img_size", "image_size", "input_size", "input_resolution")
USUAL = (16, 32, 28, 64, 224)


class FromPatches(nn.Module):
    """Patches (B, T, C*P*P) to what the model gives for the image (B, C, S, S) that they form."""

    def __init__(self, model: nn.Module, channels: int, patch: int, size: int) -> None:
        super().__init__()
        self.model = model
        self.channels, self.patch, self.side = channels, patch, size // patch
        self.width = channels * patch * patch
        self.max_length = self.side * self.side

    def forward(self, x: Tensor) -> Any:
        side, patch = self.side, self.patch
        x = x.view(len(x), side, side, self.channels, patch, patch)  # (B, rows, columns, C, P, P)
        x = x.permute(0, 3, 1, 4, 2, 5)  # (B, C, rows, P, columns, P)
        return self.model(x.reshape(len(x), self.channels, side * patch, side * patch))


def from_patches(model: nn.Module) -> Iterator[FromPatches]:
    """Ways to feed a model of images: its first convolution says channels and patch size.

    To be tried before vectors: a convolution takes (B, T, E) for one image without a batch.
    """
    first = next((part for part in model.modules() if isinstance(part, nn.Conv2d)), None)
    has_table = any(isinstance(part, nn.Embedding) for part in model.modules())
    if first is None or first.in_channels > 4 or has_table:
        return
    patch = first.stride[0]
    known = [getattr(holder, name, None) for holder in _holders(model) for name in SIZES]
    sizes = [each[0] if isinstance(each, tuple | list) else each for each in known]
    for size in dict.fromkeys([*(each for each in sizes if type(each) is int), *USUAL]):
        if patch > 1 and size % patch == 0 and 1 < size // patch <= 16:
            yield FromPatches(model, first.in_channels, patch, size)


def _holders(model: nn.Module) -> Iterator[Any]:
    yield getattr(model, "config", None)
    yield from model.modules()
