"""Modes of a model: evaluation, inference, and whether it has hooks."""

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


def has_hooks(model: nn.Module) -> bool:
    """Whether forward hooks are registered, which run only if the modules themselves are called."""
    return any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
