"""BERT's pretraining: masked tokens and next sentence prediction."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from clearformer import data
from clearformer.core.model import Batch
from clearformer.tasks.masked_token import MaskedTokenTask


class PretrainingTask(MaskedTokenTask):
    """Predict the masked tokens of two sentences, and whether the second follows the first."""

    layout: ClassVar[type[data.SingleSpan] | type[data.SentencePairs]] = data.SentencePairs

    def example_batch(
        self, ids: torch.Tensor, targets: torch.Tensor, segments: torch.Tensor | None
    ) -> Batch:
        return Batch(ids, (targets, ids[:, 0]), ids == 0, segments)

    def chance(self, vocabulary: int) -> float:
        return super().chance(vocabulary) + math.log(2)
