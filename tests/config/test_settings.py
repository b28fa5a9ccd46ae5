"""Overriding settings of a run by name, with Python values."""

import re

import numpy as np
import pytest

from clearformer import config as c
from clearformer.config.settings import with_settings
from clearformer.runs.start import preset_config


@pytest.fixture
def config():
    return preset_config("modern-tiny")


def test_short_name_resolves_to_unique_setting(config):
    changed = with_settings(
        config, {"layers": 6, "learning_rate": 0.1, "model.dropout.embedding": 0.25}
    )
    assert changed.model.layers == 6
    assert changed.train.learning_rate == 0.1
    assert changed.model.dropout.embedding == 0.25
    assert config == preset_config("modern-tiny")


def test_no_settings_leave_config_unchanged(config):
    assert with_settings(config, {}) == config


def test_new_budget_replaces_old_budget(config):
    assert config.train.minutes
    changed = with_settings(config, {"steps": 3}).train
    assert (changed.steps, changed.minutes, changed.epochs) == (3, None, None)


def test_settings_are_validated_together(config):
    changed = with_settings(config, {"accumulation_steps": 3, "batch_size": 9})
    assert (changed.train.batch_size, changed.train.accumulation_steps) == (9, 3)


def test_selects_class_by_name_with_its_settings(config):
    changed = with_settings(config, {"beta1": 0.5, "optimizer": "adamw", "learning_rate": 1e-3})
    assert changed.train.optimizer == c.AdamW(beta1=0.5)


def test_accepts_class_instances(config):
    changed = with_settings(
        config, {"optimizer": c.AdamW(beta2=0.9), "learning_rate": 1e-3, "position": c.ALiBi()}
    )
    assert changed.train.optimizer == c.AdamW(beta2=0.9)
    assert changed.model.position == c.ALiBi()


def test_accepts_numpy_numbers_and_lists(config):
    changed = with_settings(
        config,
        {
            "layers": np.int64(3),
            "learning_rate": np.float32(0.5),
            "patterns": [c.Causal() & c.Local(window=4)],
        },
    )
    assert (changed.model.layers, changed.train.learning_rate) == (3, 0.5)
    assert changed.model.patterns == (c.Causal() & c.Local(window=4),)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"learning_rte": 1}, "train has no setting 'learning_rte': did you mean 'learning_rate'?"),
        ({"zzz": 1}, "train has no setting 'zzz': see help(clearformer.train)"),
        ({"layers": "six"}, "run.model.layers is 'six', but it must be a whole number"),
        ({"optimizer": "sgd"}, "train.optimizer is 'sgd': known: AdamW, Muon"),
        (
            {"optimizer": "adamw"},
            "another optimizer needs another learning rate: add --lr (usual are 0.02 for "
            "Muon and 1e-3 for AdamW)",
        ),
    ],
)
def test_rejects_invalid_settings(config, settings, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        with_settings(config, settings)
    assert str(caught.value) == sentence
