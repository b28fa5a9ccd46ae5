"""Next token prediction with a memory: Transformer-XL reads a text in segments."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from clearformer import data
from clearformer.config import RunConfig
from clearformer.core import cache
from clearformer.core.model import Transformer
from clearformer.tasks.compression import Compression, compress_segments
from clearformer.tasks.measured import Measured
from clearformer.tasks.next_token import NextTokenTask, Stream
from clearformer.tasks.task import EvaluationOptions, LoadedTask, PairLengths
from clearformer.tasks.xl_memory import Memories
from clearformer.text import Tokenizer


class Segments(Stream):
    """A long text, cut into rows that continue from step to step."""

    same_shape: ClassVar[bool] = False
    cut = data.SegmentBatches

    def fresh(self, step: int) -> bool:
        assert isinstance(self.batches, data.SegmentBatches)
        return self.batches.fresh(step)

    def memory(self, parts: int) -> Memories:
        model = self.config.model
        assert model.memory is not None
        return Memories(model.layers, model.width, model.memory, parts)

    def evaluate(self, model: Transformer) -> Measured:
        return compress_segments(model, self.config.model, self.validation, self.tokenizer).measured


class SegmentTask(NextTokenTask):
    """Predict the next token of long texts that continue from step to step."""

    evaluation_rows: ClassVar[int | None] = 8
    loaded: ClassVar[type[LoadedTask] | None] = Segments

    def example(self, config: RunConfig, rows: int, pair_lengths: PairLengths) -> tuple[Any, Any]:
        model = config.model
        batch, _ = super().example(config, rows, pair_lengths)
        caches = []
        assert model.memory is not None
        for _ in range(model.layers):
            each = cache.HiddenMemory(model.memory)
            each.states = torch.zeros(rows, model.memory, model.width)
            caches.append(each)
        return batch, caches

    def _require_options(self, options: EvaluationOptions) -> None:
        super()._require_options(options)
        if options.stride is not None:
            raise ValueError(
                "--stride is for windows, but this model reads consecutive segments: use --memory"
            )

    def compress(
        self,
        model: Transformer,
        tokens: data.TokenFile,
        tokenizer: Tokenizer,
        options: EvaluationOptions,
    ) -> Compression:
        segment = options.context or self.model.length
        return compress_segments(
            model, self.model, tokens, tokenizer, segment=segment, memory=options.memory
        )
