"""Classification task: batches, metrics, reports and predictions."""

import math
from dataclasses import replace

import pytest
import torch

from clearformer.builder import build
from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.core.model import Batch
from clearformer.data import DataFolders
from clearformer.families import classifier, generator
from clearformer.tasks import registry
from clearformer.tasks.class_report import report
from clearformer.tasks.classification import classify, predict

TRAIN = TrainConfig(learning_rate=1e-2, batch_size=4, steps=5)


def small(config):
    return replace(config, length=16, layers=1, width=16, heads=2, hidden=32)


@pytest.fixture
def places(tmp_path):
    return DataFolders(cache=tmp_path)


@pytest.fixture
def labels(tmp_path, places):
    path = tmp_path / "a.csv"
    rows = [f"good {i} film {'very ' * (i % 30)},yes\nbad {i} film,no\n" for i in range(40)]
    path.write_text("text,label\n" + "".join(rows))
    data = DataConfig(source=str(path), tokenizer="words", vocabulary=50, validation_fraction=0.2)
    return registry.load(RunConfig(model=small(classifier()), data=data, train=TRAIN), places)


def test_labels_set_classes_and_names(labels):
    head = labels.config.model.head
    assert (head.classes, head.names) == (2, ("no", "yes"))
    batch = labels.batch(0)
    assert batch.attention_mask.shape == batch.tokens.shape
    assert batch.targets.shape == (4,)
    assert any("longer than 16 tokens" in note for note in labels.notes)


def test_accuracy_matches_predictions(labels):
    model = build(labels.config.model)
    found = predict(model, labels.validation, labels.config)
    sums = found.sum(1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    right = [
        int(row.argmax()) == label
        for row, label in zip(found, labels.validation.labels, strict=True)
    ]
    assert labels.evaluate(model).figures["accuracy"] == pytest.approx(sum(right) / len(right))


def test_evaluation_keeps_training_mode_and_rng(labels):
    model = build(labels.config.model).train()
    state = torch.get_rng_state()
    labels.evaluate(model)
    assert model.training
    assert torch.get_rng_state().equal(state)


def test_model_accepts_batches(labels):
    batch = labels.batch(1)
    assert isinstance(batch, Batch)
    sums, counts = build(labels.config.model).loss(batch)
    assert counts.tolist() == [4]
    assert torch.isfinite(sums).all()


def test_typical_length_is_that_of_padded_batches(tmp_path, places):
    path = tmp_path / "a.csv"
    data = DataConfig(source=str(path), tokenizer="words", vocabulary=50, validation_fraction=0.2)
    config = RunConfig(model=replace(small(classifier()), length=64), data=data, train=TRAIN)
    for words, length in ((33, 40), (10, 10), (80, 64)):  # from 32 on in steps of 8, then cut
        text = "good " * (words - 1)
        rows = [f"{text}{i},{('yes', 'no')[i % 2]}\n" for i in range(40)]
        path.write_text("text,label\n" + "".join(rows))
        assert registry.task_of(config.model).typical_length(config, places) == length


def test_report_metrics_match_hand_computation():
    guesses = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    found = report(guesses, torch.tensor([0, 1, 1, 1]), ("no", "yes"))
    assert found.accuracy == 0.75
    assert found.confusion.tolist() == [[1, 0], [1, 2]]
    assert found.by_class() == [
        ("no", 1, 0.5, 1.0, pytest.approx(2 / 3)),
        ("yes", 3, 1.0, pytest.approx(2 / 3), pytest.approx(0.8)),
    ]
    expected = -(math.log(0.9) + math.log(0.8) + math.log(0.4) + math.log(0.7)) / 4
    assert found.loss == pytest.approx(expected, rel=1e-5)


def test_calibration_error_matches_hand_computation():
    sure = torch.tensor([[0.75, 0.25]] * 4)
    assert report(sure, torch.tensor([0, 0, 0, 1]), ("a", "b")).calibration == pytest.approx(0.0)
    assert report(sure, torch.tensor([1, 1, 1, 1]), ("a", "b")).calibration == pytest.approx(0.75)
    two = torch.tensor([[0.95, 0.05], [0.55, 0.45]])
    found = report(two, torch.tensor([0, 1]), ("a", "b")).calibration
    assert found == pytest.approx((0.05 + 0.55) / 2, abs=1e-6)


def test_classify_returns_label_and_probabilities(labels):
    model, long = build(labels.config.model), "good " * 40
    found = classify(model, labels.config, labels.tokenizer, ("good", "bad", long))
    assert [each.text for each in found] == ["good", "bad", long]
    assert [each.cut for each in found] == [False, False, True]
    for each in found:
        assert sum(each.probabilities.values()) == pytest.approx(1.0)
        assert each.probabilities[each.label] == max(each.probabilities.values())
        assert tuple(each.prediction.probabilities) == ("no", "yes")
        assert each.prediction.predicted == each.label


def test_classify_rejects_other_models(labels):
    config = replace(labels.config, model=generator())
    with pytest.raises(ValueError, match="it is a generator: it can generate and embed, not clas"):
        classify(None, config, None, ("a",), name="it")
    config = replace(labels.config, model=classifier())
    with pytest.raises(ValueError, match="classifier-imdb has no names for its classes: train it"):
        classify(None, config, None, ("a",))
