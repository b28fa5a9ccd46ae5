"""Base of the objectives that learn from `data.Examples`: batches, logits of rows, and their loss.

Axes: B batch, T tokens, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearformer import data
from clearformer.config import AnyModelConfig, Head, RunConfig
from clearformer.core.model import Batch, Transformer
from clearformer.data.examples import ExampleBatch, ExampleBatches, Examples, evaluation_examples
from clearformer.inference.modes import inference_mode
from clearformer.tasks.task import LoadedTask, PairLengths, Task, rows_at_a_time
from clearformer.text import Tokenizer

BATCH = 32  # rows of an evaluation


class ExampleTask(Task):
    """Base of objectives whose rows are examples of different lengths."""

    def example(self, config: RunConfig, rows: int, pair_lengths: PairLengths) -> tuple[Any, Any]:
        ids = torch.zeros(rows, config.model.length, dtype=torch.long)
        segments = ids if two_segments(config.model) else None
        return Batch(ids, self.example_targets(ids), ids == 0, segments), None

    def example_targets(self, ids: Tensor) -> Tensor:
        """Targets for tokens (B, T) that are all zero."""
        raise NotImplementedError


class LoadedExamples(LoadedTask):
    """Examples to learn from, and examples to evaluate on."""

    def start(
        self,
        config: RunConfig,
        tokenizer: Tokenizer,
        head: Head,
        training: Examples,
        validation: Examples,
    ) -> None:
        """Set what every such task has; `head` is completed from the data."""
        model = replace(config.model, vocabulary=tokenizer.size, head=head)
        self.tokenizer = tokenizer
        self.config = replace(config, model=model)
        self.batches = ExampleBatches(
            training, config.train.batch_size, config.train.seed, model.length
        )
        self.validation = validation
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{training.sha256()} {validation.sha256()}"

    def batch(self, step: int) -> Batch:
        return as_batch(self.batches.batch(step), self.config.model)

    @property
    def evaluation_batch(self) -> int:
        return rows_at_a_time(self.config, BATCH)


def two_segments(model: AnyModelConfig) -> bool:
    """Whether a model tells the first text of a row from the second by an embedding."""
    return model.segments is not None and model.segments > 1


def as_batch(batch: ExampleBatch, model: AnyModelConfig) -> Batch:
    """The arrays of a batch as tensors."""
    return Batch(
        torch.from_numpy(batch.tokens),
        torch.from_numpy(batch.targets),
        torch.from_numpy(batch.attention_mask),
        torch.from_numpy(batch.segments) if two_segments(model) else None,
    )


def row_logits(
    model: Transformer, examples: Examples, config: RunConfig, batch_size: int = BATCH
) -> list[Tensor]:
    """What a model says of each row: (C,), or (T, C) without padding if it says it of tokens."""
    found: list[Tensor] = [torch.empty(0)] * len(examples)
    with inference_mode(model) as device:
        for each in evaluation_examples(examples, batch_size, config.model.length):
            batch = as_batch(each, config.model)
            assert batch.attention_mask is not None
            segments = None if batch.segments is None else batch.segments.to(device)
            output = model(batch.tokens.to(device), batch.attention_mask.to(device), segments)
            assert isinstance(output, Tensor)
            logits = output.float().cpu()
            for row, i in enumerate(each.ids.tolist()):
                length = len(examples.rows[i].tokens)
                found[i] = logits[row] if logits.dim() == 2 else logits[row, :length]
    return found


def split(
    config: RunConfig,
    read: Callable[[str], Any],
    texts: Callable[[Any], Sequence[str]] = lambda found: found.texts,
) -> tuple[Any, Any]:
    """Training and validation part of what `read` gives for a file, split by equal texts."""
    source, validation = config.data.source, config.data.validation
    if not source:
        raise ValueError(f"{config.model.noun} learns from a file of yours: give it as --data")
    found = read(source)
    if validation is not None:
        return found, read(validation)
    share, seed = config.data.validation_fraction, config.train.seed
    training, held_back = data.split_indices(texts(found), share, seed, found.name)
    return found.select(training), found.select(held_back)
