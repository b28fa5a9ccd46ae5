"""Label smoothing of a model in training."""

from torch import nn

from clearformer.core.heads import Head


def set_smoothing(model: nn.Module, smoothing: float) -> None:
    """Smooth the targets of every head of a model in training."""
    for head in model.modules():
        if isinstance(head, Head):
            head.smoothing = smoothing
