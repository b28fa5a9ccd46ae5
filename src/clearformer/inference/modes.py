"""Context managers for evaluation mode and inference."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and restore its mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@contextmanager
def inference_mode(model: nn.Module) -> Iterator[torch.device]:
    """`evaluating`, without gradients; gives the device of the model."""
    with evaluating(model), torch.inference_mode():
        yield next(model.parameters()).device
