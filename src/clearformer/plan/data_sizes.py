"""Sizes that a plan derives from the data: vocabulary, sequence lengths, steps per epoch."""

from __future__ import annotations

from dataclasses import replace

from clearformer.config import RunConfig
from clearformer.data import DataFolders
from clearformer.plan import footprint
from clearformer.plan.footprint import ASSUMED_LENGTHS
from clearformer.plan.planner import Plan, micro_rows
from clearformer.tasks import registry, sources
from clearformer.tasks.registry import task_of_run
from clearformer.tasks.task import PairLengths


def with_vocabulary(config: RunConfig, folders: DataFolders) -> tuple[RunConfig, list[str]]:
    """The config with the vocabulary size of its data, and notes on assumptions.

    The data is not read completely: the size of a trained vocabulary is estimated from that of
    the data.
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
            text, _ = sources.texts(data, folders, config.model.length)
        except (ValueError, OSError) as problem:
            notes.append(f"a vocabulary of {vocabulary:,} is assumed: {problem}")
        else:
            suited = text.size // sources.BYTES_PER_TOKEN
            vocabulary = min(largest, max(sources.SMALLEST_VOCABULARY, suited))
    return replace(config, model=replace(config.model, vocabulary=vocabulary)), notes


def pair_lengths(
    config: RunConfig, folders: DataFolders
) -> tuple[PairLengths, PairLengths, list[str]]:
    """Tokens of a pair in the largest and in the typical batch, and notes on assumptions."""
    try:
        known = task_of_run(config).pair_lengths(config, folders)
        return *(known or (ASSUMED_LENGTHS, ASSUMED_LENGTHS)), []
    except (ValueError, OSError) as problem:
        source, target = ASSUMED_LENGTHS
        return (
            ASSUMED_LENGTHS,
            ASSUMED_LENGTHS,
            [f"pairs of {source} and {target} tokens are assumed: {problem}"],
        )


def at_typical_length(
    plan: Plan, pair_lengths: PairLengths, folders: DataFolders
) -> tuple[Plan, list[str]]:
    """The plan with batches of typical length, for time estimates.

    Memory is planned for the longest batches instead.
    """
    config, train = plan.config, plan.config.train
    task = task_of_run(config)
    if not task.padded:
        return plan, []
    try:
        length = task.typical_length(config, folders)
    except (ValueError, OSError) as problem:
        return plan, [f"times are for texts of {config.model.length} tokens: {problem}"]
    if length is not None:
        config = replace(config, model=replace(config.model, length=length))
    counted = footprint.footprint(
        config,
        micro_rows(config, pair_lengths),
        train.recompute,
        accumulated=train.accumulation_steps > 1,
        pair_lengths=pair_lengths,
    )
    return replace(
        plan, config=config, counted=counted, fixed=replace(plan.fixed, pair_lengths=pair_lengths)
    ), []


def epoch_steps(config: RunConfig, folders: DataFolders) -> int:
    """The number of steps of a budget in epochs; this loads the data."""
    assert config.train.epochs is not None
    task = registry.load(config, folders)
    return max(1, round(config.train.epochs * task.steps_per_epoch))
