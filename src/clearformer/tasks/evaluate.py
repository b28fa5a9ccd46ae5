"""Evaluation of a trained model on text, labelled texts or pairs, in one call."""

from __future__ import annotations

from typing import Any

from clearformer.config import RunConfig
from clearformer.data import DataFolders
from clearformer.tasks.registry import task_of_run
from clearformer.tasks.task import EvaluationOptions, EvaluationRequest, Report
from clearformer.text import Tokenizer


def evaluate(
    model: Any,
    config: RunConfig,
    tokenizer: Tokenizer,
    folders: DataFolders,
    options: EvaluationOptions = EvaluationOptions(),
) -> Report:
    """Metrics of a model on the run's validation data, or on the data that the options name.

    The report depends on the task: `report.metrics` are its numbers, `report.lines()` its text.
    """
    task = task_of_run(config)
    prepared = task.evaluation_data(EvaluationRequest(config, tokenizer, options, folders))
    report: Report = task.measure(model, prepared)
    return report
