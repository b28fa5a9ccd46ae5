"""RunConfig: one budget, valid numbers, and JSON round trips."""

from dataclasses import replace

import pytest

from clearformer.config import (
    DataConfig,
    InverseSqrt,
    Masking,
    Muon,
    Origin,
    RunConfig,
    StableThenDecay,
    TrainConfig,
    run_from_json,
    to_json,
)
from clearformer.config.codec import FORMER_FIELDS
from clearformer.families import preset, presets
from clearformer.families.recipes import recipe

TRAIN = TrainConfig(learning_rate=1e-3, batch_size=8, steps=10)


@pytest.mark.parametrize("name", presets())
def test_every_recipe_round_trips_through_json(name):
    model = preset(name)
    data, train = recipe(model)
    run = RunConfig(model=model, data=data, train=train)
    assert run_from_json(to_json(run)) == run


def test_reads_former_names_of_settings():
    run = RunConfig(
        model=preset("xl-tiny"),
        data=DataConfig(source="x", text_column="review", masking=Masking(rate=0.3)),
        train=replace(
            TRAIN, gradient_clip=0.5, ema_decay=0.9, optimizer=Muon(adam_learning_rate=1e-4)
        ),
    )
    old = to_json(run)
    places = {
        "ModelConfig": old["model"],
        "TrainConfig": old["train"],
        "Muon": old["train"]["optimizer"],
        "DataConfig": old["data"],
        "Masking": old["data"]["masking"],
    }
    assert places.keys() == FORMER_FIELDS.keys()
    for kind, place in places.items():
        for former, current in FORMER_FIELDS[kind].items():
            place[former] = place.pop(current)
    assert run_from_json(old) == run
    old["train"]["learning_rate"] = 1.0
    with pytest.raises(ValueError, match=r"run\.train has the field 'learning_rate' twice"):
        run_from_json(old)


def test_optimizer_and_schedule_round_trip_through_json():
    train = replace(TRAIN, optimizer=Muon(momentum=0.9), schedule=InverseSqrt(warmup=7))
    run = RunConfig(model=preset("gpt2"), data=DataConfig(source="x"), train=train)
    assert run_from_json(to_json(run)) == run


def test_config_of_earlier_version_keeps_its_schedule():
    run = RunConfig(model=preset("gpt2"), data=DataConfig(source="x"), train=TRAIN)
    saved = to_json(run)
    assert saved["train"].pop("decay_start") == "after_warmup"
    assert run_from_json(saved).train.decay_start == "from_start"
    assert "decay_start" not in saved["train"], "what was given is not changed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0.0, but it must be above 0"),
        ({"batch_size": 0}, "batch_size is 0, but it must be at least 1"),
        (
            {"keep_checkpoints": 1},
            "keep_checkpoints is 1, but it must be at least 2, so that one always survives",
        ),
        ({"evaluations": 0}, "evaluations is 0, but it must be at least 1"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0, but it must be at least 0 and below 1"),
        ({"batch_size": 2**20}, "batch_size is 1048576, but it must be at most 131,072"),
        ({"threads": 100_000}, "threads is 100000, but it must be at most 1,024"),
        ({"steps": 10**400}, "steps is 1000000.*0, but it must be at most 1,000,000,000,000"),
        ({"steps": None, "epochs": 1e300}, r"epochs is 1e\+300, but it must be at most 1,000,000,"),
        ({"steps": None, "minutes": 1e10}, "minutes is 10000000000.0, but it must be at most"),
        (
            {"timeout_seconds": 1e10},
            "timeout_seconds is 10000000000.0, but it must be at most 1,000,",
        ),
        ({"evaluations": 10**13}, "evaluations is 10000000000000, but it must be at most"),
        ({"recompute": 1001}, "recompute is 1001, but it must be at most 1,000"),
        ({"steps": -1}, "steps is -1, but it must be above 0, or absent"),
        ({"ema_decay": 1.0}, "ema_decay is 1.0, but it must be between 0 and 1, or absent"),
        (
            {"accumulation_steps": 3},
            "accumulation_steps is 3, but it must divide the batch of 8: one of 1, 2, 4",
        ),
        ({"minutes": 2.0}, "the budget is given in steps and minutes"),
        ({"steps": None}, "the budget is given in nothing"),
    ],
)
def test_rejects_invalid_train_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(TRAIN, **changes)


def test_rejects_invalid_schedule_and_data_settings():
    with pytest.raises(ValueError, match="warmup is 10000000000000, but it must be at most 1,000,"):
        InverseSqrt(warmup=10**13)
    with pytest.raises(ValueError, match="decay is 0, but it must be above 0 and at most 1"):
        StableThenDecay(decay=0)
    with pytest.raises(
        ValueError, match="validation_fraction is 1, but it must be between 0 and 1"
    ):
        DataConfig(source="x", validation_fraction=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": 0.0}, "Masking: rate is 0.0, but it must be between 0 and 1"),
        ({"mask_replace": 1.5}, "mask_replace is 1.5, but it must be from 0 to 1"),
        (
            {"random_replace": 0.3},
            "random_replace is 0.3, but it must be at most what mask_replace leaves, 0.2",
        ),
    ],
)
def test_rejects_invalid_masking_rates(changes, message):
    assert Masking(mask_replace=0.9, random_replace=0.1).unit == "tokens"
    with pytest.raises(ValueError, match=message):
        Masking(**changes)


def test_masking_origin_and_freezing_round_trip_and_are_optional():
    run = RunConfig(
        model=preset("bert-mini-masked"),
        data=DataConfig(source="x", masking=Masking(unit="words")),
        train=replace(TRAIN, freeze="body"),
        origin=Origin(folder="runs/a", sha256="ab"),
    )
    assert run_from_json(to_json(run)) == run
    old = to_json(run)
    del old["origin"], old["data"]["masking"], old["train"]["freeze"]  # as written before
    read = run_from_json(old)
    assert (read.origin, read.data.masking, read.train.freeze) == (None, None, None)
