"""Multi-label classification from a table to predictions, from Python."""

import json
import math
from dataclasses import replace

import pytest
import torch

import clearformer as cf
from clearformer.config import MultiLabelClassifier
from clearformer.data import DataFolders
from clearformer.tasks import registry
from clearformer.training.class_weights import WeightedLabels

TINY = {"steps": 40, "learning_rate": 0.02, "batch_size": 16, "evaluations": 1, "length": 16,
        "width": 16, "hidden": 32, "buckets": 64, "threads": 1, "compile": "off", "quiet": True,
        "dropout.token": 0.0}  # fmt: skip
WORDS = {"sun": "warm", "rain": "wet", "wind": "cold"}


def rows(count=60):
    """Texts whose words decide their labels."""
    found = []
    for i in range(count):
        chosen = [word for place, word in enumerate(WORDS) if (i >> place) & 1]
        labels = [WORDS[word] for word in chosen]
        found.append((" ".join(["day", *chosen, f"number{i % 5}", str(i)]), labels))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    cf.train("classifier-small", data=rows(), task="multi-label", out=folder / "run", **TINY)
    return folder / "run"


@pytest.fixture(scope="module")
def model(run):
    return cf.load(run)


def test_it_learns_which_labels_a_text_has(model):
    found = model.classify(["day sun wind", "day", "day rain"])
    assert [each.labels for each in found] == [("cold", "warm"), (), ("wet",)]
    assert found[0].label == "cold; warm"
    assert found[0].probability == found[0].prediction.probability
    assert model.predict("day rain").answer()["labels"] == ["wet"]
    assert model.config.noun == "a multi-label classifier"
    assert model.config.head.names == ("cold", "warm", "wet")


def test_evaluate_has_a_row_for_each_text(model):
    found = model.evaluate()
    assert found.metrics["micro_f1"] > 0.8
    first = found.rows(probabilities=True)[0]
    assert {"predicted", "probability", "correct", "p(cold)"} <= set(first)


def test_the_card_shows_the_baseline_and_works_from_anywhere(run):
    card = (run / "README.md").read_text()
    assert "a logistic regression for each label (scikit-learn) reach micro F1" in card
    assert f"clearformer classify {run}" in card


def test_a_run_resumes_with_the_same_labels(run):
    again = cf.train(out=run, resume=True, steps=42, quiet=True)
    assert again.config.head.names == ("cold", "warm", "wet")
    with pytest.raises(ValueError, match="this run has a multi-label classifier: leave it out"):
        cf.train(out=run, resume=True, task="regression", steps=43, quiet=True)


def test_unknown_labels_are_named_or_skipped(model, tmp_path):
    path = tmp_path / "b.jsonl"
    new = [{"text": "day sun", "label": ["WARM"]}, {"text": "x", "label": ["hail"]}]
    path.write_text("\n".join(map(json.dumps, new)))
    with pytest.raises(ValueError, match="'hail' is not in the training data, whose labels are"):
        model.evaluate(path)
    found = model.evaluate(path, unknown_label="skip")
    assert (found.report.total, found.report.left_out) == (1, 1)


def test_loss_is_binary_cross_entropy_and_counts_labels(model):
    head, hidden = model.module.head, torch.randn(2, 3, model.config.width)
    targets = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, -100.0]])
    total, count = head.loss(hidden, targets)
    p = head(hidden).sigmoid()
    expected = -(p[0, 0].log() + (1 - p[0, 1]).log() + p[0, 2].log()
                 + (1 - p[1, 0]).log() + (1 - p[1, 1]).log())  # fmt: skip
    torch.testing.assert_close(total[0], expected)
    assert count.tolist() == [5]
    with pytest.raises(ValueError, match="targets"):
        head.loss(hidden, targets[:, :2])


def test_balanced_weights_give_both_answers_the_same_sum():
    config = replace(
        cf.families.classifier("small"),
        width=16,
        vocabulary=10,
        head=MultiLabelClassifier(classes=2),
    )
    head = cf.build(config).head
    targets = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    head.criterion = WeightedLabels.balanced(targets)
    torch.nn.init.zeros_(head.project.weight)
    total, count = head.loss(torch.randn(4, 3, 16), targets)  # every probability is one half
    assert float((total / count).detach()) == pytest.approx(math.log(2))
    weights = torch.where(targets > 0, head.criterion.given, head.criterion.absent)
    torch.testing.assert_close((weights * targets).sum(0), torch.full((2,), 2.0))


def test_the_task_is_chosen_by_its_head(model):
    task = registry.task_of(model.config)
    assert (task.metric, task.counted) == ("micro_f1", "labels")
    assert task.target.form is not None
    with pytest.raises(ValueError, match=r"modern-tiny is a generator: use classifier-small"):
        cf.Training("modern-tiny", data="x.txt", task="multi-label")
    with pytest.raises(ValueError, match="imdb has one class for each text: leave out --task"):
        cf.train("classifier-small", data="imdb", task="multi-label", steps=1, quiet=True)


def test_a_label_of_a_single_text_is_learned_and_not_held_back(tmp_path):
    """Whichever text has the rare label, the split and a share of it keep it in training."""
    for seed in range(6):
        rare = [*rows(20), (f"hail number {seed}", ["hail"])]
        training = cf.Training("classifier-small", data=rare, task="multi-label",
                               out=tmp_path / str(seed), seed=seed, **TINY)  # fmt: skip
        training.folder.mkdir()
        training._write_data()
        for share in (1.0, 0.2):
            config = replace(training.config, data=replace(training.config.data,
                                                           training_share=share))  # fmt: skip
            loaded = registry.load(config, DataFolders())
            assert "hail" in loaded.names
            assert len(loaded.validation) >= 1
    alone = [(f"text {i}", [f"label {i}"]) for i in range(10)]
    with pytest.raises(ValueError, match="every text has a label that no other text has"):
        cf.train("classifier-small", data=alone, task="multi-label", out=tmp_path / "x", **TINY)


def test_a_misspelled_task_gets_the_nearest():
    with pytest.raises(ValueError, match="there is no task 'multilabel': did you mean 'multi-l"):
        cf.Training("classifier-small", data="a.csv", task="multilabel")
