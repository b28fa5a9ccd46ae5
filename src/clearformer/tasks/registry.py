"""Registry of tasks: the task of each model config."""

from __future__ import annotations

from typing import assert_never

from clearformer import data
from clearformer.config import (
    AnswerSpan,
    AnyModelConfig,
    Classifier,
    Features,
    MaskedToken,
    MultiLabelClassifier,
    MultipleChoice,
    NextSentence,
    NextToken,
    PairClassifier,
    Pretraining,
    Regressor,
    RunConfig,
    Seq2SeqConfig,
    TokenClassifier,
)
from clearformer.tasks.answer_spans import AnswerSpanTask
from clearformer.tasks.chat import ChatTask
from clearformer.tasks.classification import ClassificationTask
from clearformer.tasks.features import FeaturesTask
from clearformer.tasks.masked_token import MaskedTokenTask
from clearformer.tasks.multi_label import MultiLabelTask
from clearformer.tasks.next_token import NextTokenTask
from clearformer.tasks.pretraining import PretrainingTask
from clearformer.tasks.regression import RegressionTask
from clearformer.tasks.segments import SegmentTask
from clearformer.tasks.sentence_pairs import SentencePairTask
from clearformer.tasks.target import Target
from clearformer.tasks.task import LoadedTask, Task
from clearformer.tasks.token_labels import TokenLabelTask
from clearformer.tasks.translation import TranslationTask
from clearformer.text import Tokenizer


def task_of(model: AnyModelConfig) -> Task:
    """The task of a model, by its config and its head."""
    if isinstance(model, Seq2SeqConfig):
        return TranslationTask(model)
    match model.head:
        case NextToken():
            return NextTokenTask(model) if model.memory is None else SegmentTask(model)
        case MaskedToken():
            return MaskedTokenTask(model)
        case Pretraining():
            return PretrainingTask(model)
        case PairClassifier():
            return SentencePairTask(model)
        case MultiLabelClassifier():
            return MultiLabelTask(model)
        case Regressor():
            return RegressionTask(model)
        case Classifier():
            return ClassificationTask(model)
        case TokenClassifier():
            return TokenLabelTask(model)
        case AnswerSpan():
            return AnswerSpanTask(model)
        case Features() | NextSentence() | MultipleChoice():
            return FeaturesTask(model)
        case _:
            assert_never(model.head)


def target_of(model: AnyModelConfig, name: object = None) -> Target:
    """What a model predicts of a whole text; ValueError for any other model."""
    target = task_of(model).target
    if target is None:
        raise ValueError(
            f"{name or model.name} is {model.noun}, which predicts nothing of a whole text: use "
            f"clearformer {model.verbs[0]}"
        )
    return target


# By what the data of a generator holds, where its head alone does not decide.
FORMS: dict[str, type[Task]] = {"conversations": ChatTask}


def task_of_run(config: RunConfig) -> Task:
    """The task of a run, by its model and the form of its data."""
    own = FORMS.get(config.data.form)
    return task_of(config.model) if own is None else own(config.model)


def load(
    config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None = None
) -> LoadedTask:
    """The task of a run with its data loaded; without a tokenizer, one is trained."""
    return task_of_run(config).load(config, folders, tokenizer)
