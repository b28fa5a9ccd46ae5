"""Head configs: JSON round trips, and reading heads of earlier versions."""

import dataclasses
import typing

import pytest

from clearformer import config as c
from clearformer.builder import build
from clearformer.families import preset

HEADS = typing.get_args(c.Head)


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_round_trips_through_json(kind):
    model = dataclasses.replace(preset("bert-tiny"), head=kind())
    assert c.model_from_json(c.to_json(model)) == model


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_can_be_built(small, kind):
    assert build(small("bert", head=kind())).head is not None


def test_classifier_of_earlier_version_has_bias():
    old = c.to_json(dataclasses.replace(preset("bert-tiny"), head=c.Classifier(pool="pooler")))
    del old["head"]["bias"]
    assert c.model_from_json(old).head == c.Classifier(pool="pooler", bias=True)


@pytest.mark.parametrize("kind", [c.Classifier, c.TokenClassifier])
def test_rejects_class_names_that_do_not_match_classes(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__}: classes is 1, but it must be at least"):
        kind(classes=1)
    with pytest.raises(ValueError, match=r"names is .*, but it must be as many as classes"):
        kind(classes=2, names=("a",))
