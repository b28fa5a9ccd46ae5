"""Regression from a table to predictions, from Python."""

import math

import pytest
import torch

import clearformer as cf
from clearformer.config import Regressor

WORDS = {"sea": 40.0, "garden": 20.0, "noisy": -30.0}
TINY = {"steps": 80, "learning_rate": 0.02, "batch_size": 16, "evaluations": 1, "length": 16,
        "width": 16, "hidden": 32, "buckets": 64, "threads": 1, "compile": "off", "quiet": True,
        "dropout.token": 0.0, "dropout.embedding": 0.0, "dropout.residual": 0.0}  # fmt: skip


def rows(count=80):
    """Texts whose words decide a price far from zero."""
    found = []
    for i in range(count):
        chosen = [word for place, word in enumerate(WORDS) if (i >> place) & 1]
        price = 1000 + sum(WORDS[word] for word in chosen)
        found.append({"flat": " ".join(["flat", *chosen, str(i)]), "price": price})
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prices")
    cf.train(data=rows(), text="flat", label="price", task="regression", out=folder / "run", **TINY)
    return folder / "run"


@pytest.fixture(scope="module")
def model(run):
    return cf.load(run)


def test_numbers_are_in_the_unit_of_the_data(model):
    head = model.config.head
    assert 990 < head.mean < 1040
    assert 10 < head.std < 40
    low, high = model.predict(["flat noisy", "flat sea garden"])
    assert low.value < 1000 < high.value
    assert high.answer() == {"predicted": high.value}
    assert abs(high.value - 1060) < head.std


def test_evaluate_compares_with_the_right_numbers(model):
    found = model.evaluate()
    assert found.metrics["rmse"] < model.config.head.std
    row = found.rows(worst_first=True)[0]
    assert row["error"] == pytest.approx(row["predicted"] - row["price"], abs=0.01)
    errors = [abs(each["error"]) for each in found.rows(worst_first=True)]
    assert errors == sorted(errors, reverse=True)


def test_the_card_shows_ridge_regression(run):
    card = (run / "README.md").read_text()
    assert "TF-IDF and ridge regression (scikit-learn) reach RMSE" in card
    assert f"clearformer predict {run}" in card


def test_the_loss_is_the_squared_error_of_standardized_numbers(model):
    head, hidden = model.module.head, torch.randn(3, 4, model.config.width)
    targets = torch.tensor([0.5, -1.0, -100.0])
    total, count = head.loss(hidden, targets)
    standardized = (head(hidden)[:, 0] - head.mean) / head.std
    expected = (standardized[:2] - targets[:2]).square().sum()
    torch.testing.assert_close(total[0], expected, rtol=1e-3, atol=1e-3)
    assert count.tolist() == [2]


def test_it_does_not_classify(model):
    with pytest.raises(ValueError, match="a regression model: it can predict and embed, not"):
        model.classify("flat")


def test_equal_numbers_and_class_weights_are_refused(tmp_path):
    same = [(f"text {i}", 3.0) for i in range(20)]
    options = {**TINY, "steps": 1, "task": "regression"}
    with pytest.raises(ValueError, match="every number is 3, so that there is nothing to learn"):
        cf.train(data=same, out=tmp_path / "a", **options)
    with pytest.raises(ValueError, match="class_weights is for classifiers, but this is a regress"):
        cf.train(data=rows(), text="flat", label="price", out=tmp_path / "b",
                 class_weights="balanced", **options)  # fmt: skip


def test_a_fine_tuned_regressor_keeps_its_head_only_for_the_same_scale(run, tmp_path):
    again = cf.train(from_=run, data=rows(), text="flat", label="price", out=tmp_path / "a",
                     steps=1, learning_rate=1e-9, quiet=True, threads=1)  # fmt: skip
    before = cf.load(run).module.head.project.weight
    torch.testing.assert_close(again.module.head.project.weight, before, atol=1e-4, rtol=1e-3)
    other = [{**row, "price": row["price"] * 2} for row in rows()]
    new = cf.train(from_=run, data=other, text="flat", label="price", out=tmp_path / "b",
                   steps=1, learning_rate=1e-9, quiet=True, threads=1)  # fmt: skip
    assert not torch.allclose(new.module.head.project.weight, before, atol=1e-4)


@pytest.mark.parametrize("wrong", [{"std": 0.0}, {"std": math.inf}, {"mean": math.nan}])
def test_a_head_with_an_impossible_scale_is_refused(wrong):
    with pytest.raises(ValueError, match="Regressor"):
        Regressor(**wrong)
