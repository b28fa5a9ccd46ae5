"""torch.compile around a model's loss, from outside."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from clearformer.core.heads import Head
from clearformer.core.vocabulary import in_chunks, summed_in_chunks
from clearformer.train.step import Loss


def compiled(model: Any, **how: Any) -> Loss:
    """The model's loss, compiled; the loop over chunks of a large vocabulary is left as it is."""
    # It brings its own gradient, and unrolled it would be compiled once for each chunk.
    beside = partial(in_chunks, summed=torch.compiler.disable(summed_in_chunks))
    for head in model.modules():
        if isinstance(head, Head) and head.vocabulary_loss is in_chunks:
            head.vocabulary_loss = beside
    loss: Loss = torch.compile(model.loss, **how)
    return loss
