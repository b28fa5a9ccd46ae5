"""How the makers of a checkpoint write with it is told, in whichever file it stands."""

import json

import pytest

from clearformer.hub import generation_defaults
from clearformer.hub.importing import import_checkpoint


@pytest.mark.parametrize(
    ("said", "notes"),
    [
        ({}, ()),
        ({"repetition_penalty": 1.0, "num_beams": 1, "suppress_tokens": [], "top_p": 0.9}, ()),
        ({"repetition_penalty": 1.8}, ("its makers write with --repetition-penalty 1.8",)),
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 0},
            ("its makers write with --temperature 0.6 --top-p 0.9",),
        ),
        (
            {"num_beams": 4, "no_repeat_ngram_size": 3, "bad_words_ids": [[7]]},
            (
                "its makers write with --beam 4",
                "its makers also ask for bad_words_ids=[[7]], no_repeat_ngram_size=3, which is "
                "not done",
            ),
        ),
        (
            {"repetition_penalty": "a lot"},
            ("its makers also ask for repetition_penalty='a lot', which is not done",),
        ),
    ],
)
def test_notes(said, notes):
    assert generation_defaults.notes(said) == notes


def test_what_is_followed_is_not_told():
    said = {"num_beams": 4, "bad_words_ids": [[7]]}
    found = generation_defaults.notes(said, "translate", followed=frozenset({"bad_words_ids"}))
    assert found == ("its makers translate with --beam 4",)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2"])
def test_an_import_tells_them(folder, family, file):
    place, _ = folder(family)
    path = place / file
    if file == "config.json":
        (place / "generation_config.json").unlink(missing_ok=True)
    said = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**said, "repetition_penalty": 1.8, "suppress_tokens": [3]}))
    notes = import_checkpoint(place).notes
    assert "its makers write with --repetition-penalty 1.8" in notes
    assert "its makers also ask for suppress_tokens=[3], which is not done" in notes
