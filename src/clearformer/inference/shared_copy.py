"""Copies of a model that share its parameters: to replace modules and leave the model as it is."""

from __future__ import annotations

import copy
from itertools import chain
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def shared_copy(model: M) -> M:
    """Copy the modules of a model but not its tensors: training the model changes the copy too."""
    tensors = chain(model.parameters(), model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
