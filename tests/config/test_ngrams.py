"""Settings of the scores of n-grams: evidence by hand, JSON, limits."""

import math

import numpy as np
import pytest

from clearformer.config import LogCountRatio, Ngrams, Uniform, model_from_json, to_json
from clearformer.families import classifier


def test_log_count_ratio_by_hand():
    """Three n-grams, of which the last is in a single text."""
    inside, outside = np.array([[3.0], [0.0], [1.0]]), np.array([[1.0], [2.0], [0.0]])
    found = LogCountRatio(smoothing=1.0, min_texts=2).of(inside, outside)[:, 0]
    expected = [math.log((4 / 5) / (2 / 5)), math.log((1 / 5) / (3 / 5)), 0.0]
    np.testing.assert_allclose(found, expected)
    assert (Uniform().of(inside, outside) == 1).all()


def test_settings_survive_json():
    model = classifier("ngrams")
    assert model.ngrams == Ngrams()
    assert model_from_json(to_json(model)) == model


@pytest.mark.parametrize(
    "wrong",
    [{"longest": 0}, {"buckets": 0}, {"scale": 0.0}, {"weight": 1e9}, {"head_weight": -1.0}],
)
def test_impossible_settings_are_named(wrong):
    with pytest.raises(ValueError, match=f"Ngrams: {next(iter(wrong))} is"):
        Ngrams(**wrong)
    for name in ("smoothing", "min_texts"):
        with pytest.raises(ValueError, match=f"LogCountRatio: {name} is 0"):
            LogCountRatio(**{name: 0})
