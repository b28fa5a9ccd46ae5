"""Sizes that a plan takes from the data: vocabulary, lengths, steps per epoch."""

from __future__ import annotations

from dataclasses import replace

from clearformer.config import RunConfig
from clearformer.data import DataFolders
from clearformer.plan import footprint
from clearformer.plan.footprint import ASSUMED, Sides
from clearformer.plan.planner import Plan, micro_rows
from clearformer.tasks import registry, sources
from clearformer.tasks.registry import task_of


def with_vocabulary(config: RunConfig, places: DataFolders) -> tuple[RunConfig, list[str]]:
    """The config with the vocabulary that its data will have, and notes on what was assumed.

    The data is not read as a whole; a learned vocabulary is estimated from its size.
    """
    data, vocabulary = config.data, config.model.vocabulary
    largest = sources.LARGEST_VOCABULARY.get(data.tokenizer)
    notes: list[str] = []
    if data.tokenizer == "bytes":
        vocabulary = 256
    elif data.vocabulary is not None:
        vocabulary = data.vocabulary
    elif largest is not None:
        try:
            text, _ = sources.texts(data, places, config.model.length)
        except (ValueError, OSError) as problem:
            notes.append(f"a vocabulary of {vocabulary:,} is assumed: {problem}")
        else:
            suited = text.size // sources.BYTES_PER_TOKEN
            vocabulary = min(largest, max(sources.SMALLEST_VOCABULARY, suited))
    return replace(config, model=replace(config.model, vocabulary=vocabulary)), notes


def pair_lengths(config: RunConfig, places: DataFolders) -> tuple[Sides, Sides, list[str]]:
    """Tokens of a pair in the largest and in the typical batch, and notes on what was assumed."""
    try:
        known = task_of(config.model).sides(config, places)
        return *(known or (ASSUMED, ASSUMED)), []
    except (ValueError, OSError) as problem:
        source, target = ASSUMED
        return ASSUMED, ASSUMED, [f"pairs of {source} and {target} tokens are assumed: {problem}"]


def at_typical_length(plan: Plan, sides: Sides, places: DataFolders) -> tuple[Plan, list[str]]:
    """The plan for batches of typical length, which decide the time; the longest decide memory."""
    config, train = plan.config, plan.config.train
    task = task_of(config.model)
    if not task.padded:
        return plan, []
    try:
        length = task.usual_length(config, places)
    except (ValueError, OSError) as problem:
        return plan, [f"times are for texts of {config.model.length} tokens: {problem}"]
    if length is not None:
        config = replace(config, model=replace(config.model, length=length))
    counted = footprint.footprint(
        config,
        micro_rows(config, sides),
        train.recompute,
        accumulated=train.accumulation_steps > 1,
        sides=sides,
    )
    return replace(plan, config=config, counted=counted, given=replace(plan.given, sides=sides)), []


def epoch_steps(config: RunConfig, places: DataFolders) -> int:
    """Steps of a budget in epochs; this loads the data."""
    assert config.train.epochs is not None
    task = registry.load(config, places)
    return max(1, round(config.train.epochs * task.steps_per_epoch))
