"""Generation defaults: validation, and reading them from files of earlier versions."""

import json
from dataclasses import replace

import pytest

from clearformer.config import (
    GenerationDefaults,
    RunConfig,
    model_and_generation_from_json,
    model_from_json,
    run_from_json,
    to_json,
)
from clearformer.families import preset
from clearformer.families.recipes import recipe

TRANSLATOR = GenerationDefaults(
    start_id=7,
    end_ids=(6,),
    banned_ids=(3, 7),
    renormalize=True,
    force_end=True,
    max_tokens=20,
    typical_source_ids=(1, 2),
    typical_target_ids=(4,),
)
# The same as version 0.1 wrote it, in the model's JSON.
FORMER_TRANSLATOR = {
    "marks": {"kind": "Marks", "start": 7, "end": 6},
    "sides": {"kind": "Sides", "source": [1, 2], "target": [4]},
    "rules": {
        "kind": "TargetRules",
        "never": [3, 7],
        "share": "given",
        "limit": "closed",
        "most": 20,
    },
}
UNTRAINED = {"marks": None, "sides": None, "rules": None}


def run_of(name, **changes):
    model = preset(name)
    data, train = recipe(model)
    return RunConfig(model=model, data=data, train=train, **changes)


def former(run, head=None, **fields):
    """The JSON of a run as earlier versions wrote it."""
    document = json.loads(json.dumps(to_json(run)))
    del document["generation"]
    document["model"] |= fields
    document["model"]["head"] |= {"ends": None} | (head or {})
    return document


@pytest.mark.parametrize(
    ("name", "head", "fields", "expected"),
    [
        ("original-tiny", None, FORMER_TRANSLATOR, TRANSLATOR),
        ("original-tiny", None, UNTRAINED, GenerationDefaults()),
        (
            "original-tiny",
            None,
            {**UNTRAINED, "marks": FORMER_TRANSLATOR["marks"]},
            GenerationDefaults(start_id=7, end_ids=(6,)),
        ),
        (
            "original-tiny",
            None,
            {**FORMER_TRANSLATOR, "rules": {"kind": "TargetRules", "share": "kept"}},
            replace(TRANSLATOR, banned_ids=(), renormalize=False, force_end=False, max_tokens=None),
        ),
        ("gpt2-small", {"ends": [5, 8]}, {}, GenerationDefaults(end_ids=(5, 8))),
        ("gpt2-small", {"ends": []}, {}, GenerationDefaults(end_ids=())),
        ("gpt2-small", {"ends": None}, {}, GenerationDefaults()),
    ],
)
def test_reads_defaults_from_model_section_of_earlier_versions(name, head, fields, expected):
    run = run_of(name)
    document = former(run, head, **fields)
    assert run_from_json(document) == replace(run, generation=expected)
    assert model_from_json(document["model"]) == run.model
    assert model_and_generation_from_json(document["model"]) == (run.model, expected)


def test_defaults_are_written_beside_the_model():
    run = run_of("original-tiny", generation=TRANSLATOR)
    document = json.loads(json.dumps(to_json(run)))
    assert run_from_json(document) == run
    assert not document["model"].keys() & {"marks", "sides", "rules"}
    assert "ends" not in document["model"]["head"]
    again = model_and_generation_from_json(document["model"], document["generation"])
    assert again == (run.model, TRANSLATOR)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"marks": 5}, "run.model has an unknown field 'marks'"),
        ({"marks": {"start": 1, "end": 2, "pad": 3}}, "run.model has an unknown field 'marks'"),
        ({"marks": {"start": "1", "end": 2}}, "run.generation.start_id is '1', but it must be a"),
        ({"marks": {"start": 1}}, "GenerationDefaults: end_ids is None, but it must be one id"),
        ({"rules": {"share": "some"}}, "run.generation.renormalize is 'some', but it must be true"),
        ({"rules": {"never": [-1]}}, "banned_ids is \\(-1,\\), but it must be ids from 0"),
    ],
)
def test_rejects_damaged_file_of_earlier_version(fields, message):
    with pytest.raises(ValueError, match=message):
        run_from_json(former(run_of("original-tiny"), **fields))


def test_rejects_old_and_new_form_together():
    document = to_json(run_of("original-tiny", generation=TRANSLATOR))
    document["model"] |= FORMER_TRANSLATOR
    with pytest.raises(ValueError, match=r"run.model has an unknown field 'marks'"):
        run_from_json(document)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start_id": -1}, "start_id is -1, but it must be at least 0, or absent"),
        ({"start_id": 3}, "end_ids is None, but it must be one id for a translator"),
        ({"start_id": 3, "end_ids": (1, 2)}, "end_ids is \\(1, 2\\), but it must be one id"),
        ({"max_tokens": 0}, "max_tokens is 0, but it must be at least 1, or absent"),
    ],
)
def test_rejects_invalid_values(changes, message):
    with pytest.raises(ValueError, match=f"^GenerationDefaults: {message}"):
        GenerationDefaults(**changes)


def test_rejects_translator_settings_for_other_models():
    message = "^generation.max_tokens is for translators, but the model is a generator: leave it"
    with pytest.raises(ValueError, match=message):
        run_of("gpt2-small", generation=GenerationDefaults(max_tokens=5))
    assert run_of("gpt2-small", generation=GenerationDefaults(end_ids=(5,)))


def test_start_token_is_banned_by_default():
    assert GenerationDefaults().resolved_banned_ids == ()
    assert GenerationDefaults(start_id=7, end_ids=(6,)).resolved_banned_ids == (7,)
    assert GenerationDefaults(start_id=6, end_ids=(6,)).resolved_banned_ids == ()
    assert TRANSLATOR.resolved_banned_ids == (3, 7)
    assert replace(TRANSLATOR, banned_ids=()).resolved_banned_ids == ()


def test_rejects_unknown_start_and_end_tokens():
    assert TRANSLATOR.require_target_ids("it") == TRANSLATOR.target_ids == (7, 6)
    with pytest.raises(ValueError, match=r"^it: its start and end tokens are unknown, .*train it"):
        GenerationDefaults(end_ids=(6,)).require_target_ids("it")
