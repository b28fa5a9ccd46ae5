"""The task of each model, and the verbs of each task."""

from dataclasses import replace

import pytest

from clearformer.config import (
    AnswerSpan,
    Classifier,
    DataConfig,
    Features,
    MultipleChoice,
    NextSentence,
    PairClassifier,
    RunConfig,
    TokenClassifier,
    TrainConfig,
)
from clearformer.data import DataFolders
from clearformer.families import bert, classifier, generator, preset, presets
from clearformer.tasks import registry
from clearformer.tasks.registry import task_of
from clearformer.tasks.task import EvaluationOptions, EvaluationRequest

TRAIN = TrainConfig(learning_rate=1e-2, batch_size=4, steps=5)
METRICS = {
    "generate": "bits_per_byte",
    "classify": "accuracy",
    "fill": "masked_loss",
    "translate": "chrf",
}


@pytest.fixture
def places(tmp_path):
    return DataFolders(cache=tmp_path)


def test_every_preset_has_task_with_metric():
    for name in presets():
        task = task_of(preset(name))
        assert task.metric == METRICS[task.model.verbs[0]], name
        assert task.larger_is_better == (task.metric in ("accuracy", "chrf"))


@pytest.mark.parametrize(
    ("name", "verb", "sentence"),
    [
        ("gpt2", "classify", "gpt2-small is a generator: it can generate and embed, not classify"),
        ("xl", "translate", "is a generator: it can generate and embed, not translate"),
        ("bert", "generate", "is a masked model: it can fill and embed, not generate"),
        ("classifier", "fill", "is a classifier: it can classify and embed, not fill"),
        ("original", "embed", "is a translator: it can translate, not embed"),
    ],
)
def test_rejects_unsupported_verb(name, verb, sentence):
    with pytest.raises(ValueError, match=sentence):
        preset(name).require_verb(verb)


@pytest.mark.parametrize("head", [Features(), NextSentence(), MultipleChoice()])
def test_head_without_objective_only_embeds(head, places):
    model = replace(bert(), head=head)
    task = task_of(model)
    assert model.verbs == ("embed",)
    model.require_verb("embed")
    config = RunConfig(model=model, data=DataConfig(source="python-docs"), train=TRAIN)
    with pytest.raises(ValueError, match=f"is {head.noun}, which is not trained here: use clear"):
        registry.load(config, places)
    with pytest.raises(ValueError, match=f"is {head.noun}, which has nothing to evaluate here"):
        task.evaluation_data(EvaluationRequest(config, None, EvaluationOptions(), places))


@pytest.mark.parametrize(
    ("head", "verb", "metric"),
    [
        (PairClassifier(), "classify", "accuracy"),
        (TokenClassifier(), "label", "accuracy"),
        (AnswerSpan(), "answer", "f1"),
    ],
)
def test_verb_and_metric_follow_head(head, verb, metric):
    model = replace(bert(), head=head)
    assert model.verbs == (verb, "embed")
    assert task_of(model).metric == metric
    with pytest.raises(ValueError, match=f"is {head.noun}: it can {verb} and embed, not fill"):
        model.require_verb("fill")


def test_classifier_pool_follows_pretraining_head():
    assert generator().head.classifier_pool(causal=True) == "mean"
    assert bert().head.classifier_pool(causal=False) == "pooler"
    assert bert("tiny-masked").head.classifier_pool(causal=False) == "first"
    assert Features(pool="last").classifier_pool(causal=True) == "last"
    assert Classifier().classifier_pool(causal=True) == "mean"


@pytest.mark.parametrize(
    ("model", "source", "message"),
    [
        (generator(), "imdb", "imdb is a table, but a generator learns from a text"),
        (classifier(), "enwik8", "enwik8 has no labels, but a classifier learns from them"),
        (bert(), "multi30k", "multi30k consists of pairs, but a masked model reads single texts"),
        (bert(), "python-docs", "but data.masking is None: set it to Masking()"),
    ],
)
def test_rejects_data_that_does_not_fit_task(places, model, source, message):
    config = RunConfig(model=model, data=DataConfig(source=source), train=TRAIN)
    with pytest.raises(ValueError, match=message):
        registry.load(config, places)
