"""Targets: every kind of model that predicts something of a text has one, others have none."""

import pytest

from clearformer.config import Classifier, MultiLabelClassifier, PairClassifier, Regressor
from clearformer.families import classifier, generator
from clearformer.tasks.registry import target_of, task_of
from clearformer.tasks.target import Target


@pytest.mark.parametrize("head", [Classifier, MultiLabelClassifier, PairClassifier, Regressor])
def test_heads_of_whole_texts_have_a_target(head):
    from dataclasses import replace

    model = replace(classifier("small"), head=head())
    assert isinstance(target_of(model), Target)
    assert task_of(model).training_share


def test_other_models_have_none():
    with pytest.raises(ValueError, match="predicts nothing of a whole text: use clearformer gen"):
        target_of(generator("enwik8"), "runs/mine")
