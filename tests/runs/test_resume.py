"""Which settings a resumed run may change; F8 on the command line is in tests/reliability."""

from dataclasses import replace

import pytest

from clearformer.config import (
    DataConfig,
    GenerationDefaults,
    Linear,
    Origin,
    RunConfig,
    TrainConfig,
)
from clearformer.families import modern, original
from clearformer.runs.resume import continued, differences


@pytest.fixture
def config():
    train = TrainConfig(learning_rate=1e-3, batch_size=4, steps=9, schedule=Linear(warmup=2))
    return RunConfig(model=modern("tiny"), data=DataConfig(source="a"), train=train)


def test_allowed_changes_are_applied_and_reported(config):
    said = []
    schedule = replace(config.train.schedule, final=0.5)
    asked = replace(
        config,
        data=replace(config.data, source="b"),
        train=replace(config.train, steps=20, schedule=schedule, keep_checkpoints=5),
    )
    assert continued(config, asked, said.append) == asked
    assert sorted(said) == [
        "note: data.source was a and is b from now on",
        "note: train.keep_checkpoints was 2 and is 5 from now on",
        "note: train.schedule.final was 0.0 and is 0.5 from now on",
        "note: train.steps was 9 and is 20 from now on",
    ]


def test_rejected_changes_are_listed(config):
    schedule = replace(config.train.schedule, warmup=3)
    asked = replace(config, train=replace(config.train, schedule=schedule, learning_rate=1.0))
    words = (
        r"train.learning_rate \(0.001 before, 1.0 now\); train.schedule.warmup \(2 "
        r"before, 3 now\)\. Leave"
    )
    said = []
    asked = replace(asked, train=replace(asked.train, steps=20))
    with pytest.raises(ValueError, match=words):
        continued(config, asked, said.append)
    assert said == [], "what does not happen is not announced"
    with pytest.raises(ValueError, match=r"origin \(None before, 0123 now\)"):
        continued(config, replace(config, origin=Origin(folder="x", sha256="0123")))


def test_schedule_of_earlier_version_is_kept(config):
    old = replace(config, train=replace(config.train, decay_start="from_start"))
    assert continued(old, config) == old
    with pytest.raises(
        ValueError, match=r"train.decay_start \(after_warmup before, from_start now\)"
    ):
        continued(config, old)


def test_other_class_is_one_difference():
    old, new = {"kind": "A", "x": 1}, {"kind": "B", "y": 2}
    assert list(differences({"kind": "R", "s": old}, {"kind": "R", "s": new})) == [("s", "A", "B")]


def test_rejects_changed_settings_by_name(config):
    other = replace(
        config, model=replace(config.model, width=64), train=replace(config.train, seed=5, steps=99)
    )
    with pytest.raises(ValueError, match=r"model.width \(\d+ before, 64 now\); train.seed \(0 bef"):
        continued(config, other)
    longer = replace(config, train=replace(config.train, steps=99))
    assert continued(config, longer).train.steps == 99


def test_start_and_end_tokens_are_kept(config):
    """They come from the data, so a resumed run is not asked for them; other defaults count."""
    learned = GenerationDefaults(start_id=9, end_ids=(8,), typical_source_ids=(1,), max_tokens=5)
    saved = replace(config, model=original("tiny"), generation=learned)
    asked = replace(saved, generation=GenerationDefaults(max_tokens=5))
    assert continued(saved, asked) == saved
    with pytest.raises(ValueError, match=r"generation.max_tokens \(5 before, None now\)"):
        continued(saved, replace(saved, generation=GenerationDefaults()))
