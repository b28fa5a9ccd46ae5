"""Notes about a checkpoint's generation_config, whichever file holds it."""

import json

import pytest

from clearformer.hub import generation_defaults
from clearformer.hub.importing import import_checkpoint


@pytest.mark.parametrize(
    ("said", "notes"),
    [
        ({}, ()),
        ({"repetition_penalty": 1.0, "num_beams": 1, "suppress_tokens": [], "top_p": 0.9}, ()),
        ({"repetition_penalty": 1.8}, ("its generation config asks for --repetition-penalty 1.8",)),
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 0},
            ("its generation config asks for --temperature 0.6 --top-p 0.9",),
        ),
        (
            {"num_beams": 4, "no_repeat_ngram_size": 3, "bad_words_ids": [[7]]},
            (
                "its generation config asks for --beam 4",
                "its generation config also sets bad_words_ids=[[7]], no_repeat_ngram_size=3, "
                "which clearformer does not apply",
            ),
        ),
        (
            {"repetition_penalty": "a lot"},
            (
                "its generation config also sets repetition_penalty='a lot', which clearformer "
                "does not apply",
            ),
        ),
    ],
)
def test_notes(said, notes):
    assert generation_defaults.notes(said) == notes


def test_applied_settings_are_not_reported():
    said = {"num_beams": 4, "bad_words_ids": [[7]]}
    found = generation_defaults.notes(said, followed=frozenset({"bad_words_ids"}))
    assert found == ("its generation config asks for --beam 4",)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2"])
def test_import_reports_generation_config(folder, family, file):
    place, _ = folder(family)
    path = place / file
    if file == "config.json":
        (place / "generation_config.json").unlink(missing_ok=True)
    said = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**said, "repetition_penalty": 1.8, "suppress_tokens": [3]}))
    notes = import_checkpoint(place).notes
    assert "its generation config asks for --repetition-penalty 1.8" in notes
    assert (
        "its generation config also sets suppress_tokens=[3], which clearformer does not apply"
        in notes
    )
