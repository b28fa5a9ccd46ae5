"""End-of-sequence tokens of a checkpoint, from whichever file holds them."""

import json

import pytest
import torch

from clearformer.config import GenerationDefaults
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.stream import stream
from clearformer.hub import eos_tokens
from clearformer.hub.hf_config import HFConfig
from clearformer.hub.importing import import_checkpoint


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, (7,)),  # the family's own
        ({"eos_token_id": None}, ()),
        ({"eos_token_id": 3}, (3,)),
        ({"eos_token_id": [3, 5, 3]}, (3, 5)),
        ({"eos_token_id": 50_256}, ()),  # of a larger model
    ],
)
def test_read_eos_accepts_id_or_list(said, found):
    assert eos_tokens.read_eos(HFConfig(said, "here"), vocabulary=10, default=(7,)) == found


@pytest.mark.parametrize("said", ["</s>", -1, [1, None], {}, True, 1.5])
def test_read_eos_rejects_other_values(said):
    with pytest.raises(ValueError, match=r"here: eos_token_id is .* must be the number of a token"):
        eos_tokens.read_eos(HFConfig({"eos_token_id": said}, "here"), vocabulary=10)


def test_generation_config_overrides_config(tmp_path):
    data = {"eos_token_id": 1, "other": 2}
    assert eos_tokens.merge_files(tmp_path, data) == data
    (tmp_path / eos_tokens.GENERATION_CONFIG).write_text(
        json.dumps({"eos_token_id": [4], "any": 5})
    )
    assert eos_tokens.merge_files(tmp_path, data) == {"eos_token_id": [4], "other": 2}
    (tmp_path / eos_tokens.GENERATION_CONFIG).write_text("{}")
    assert eos_tokens.merge_files(tmp_path, data) == {"eos_token_id": None, "other": 2}
    (tmp_path / eos_tokens.GENERATION_CONFIG).write_text("[]")
    with pytest.raises(ValueError, match="is not a JSON object"):
        eos_tokens.merge_files(tmp_path, data)


@pytest.mark.parametrize(
    ("known", "written"),
    [
        (None, {}),
        ((), {"eos_token_id": None}),
        ((3,), {"eos_token_id": 3}),
        ((3, 5), {"eos_token_id": [3, 5]}),
    ],
)
def test_eos_round_trip(small, known, written):
    config, generation = small("gpt2"), GenerationDefaults(end_ids=known)
    assert eos_tokens.write_generation(config, generation) == written
    if written:
        assert eos_tokens.read_eos(HFConfig(written, "here"), vocabulary=10) == known


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_greedy_text_ends_like_transformers(name, theirs, tmp_path):
    """A token of no special name ends the text, here and in transformers."""
    model, prompt = theirs(name), [5, 9, 30]
    given = torch.tensor([prompt])
    with torch.inference_mode():
        free = model.generate(given, max_new_tokens=12, do_sample=False)
        end = int(free[0, len(prompt) + 6])
        model.generation_config.eos_token_id = model.config.eos_token_id = end
        cut = model.generate(given, max_new_tokens=12, do_sample=False)[0, len(prompt) :].tolist()
    assert len(cut) < 12
    model.save_pretrained(tmp_path)
    imported = import_checkpoint(tmp_path)
    assert imported.generation == GenerationDefaults(end_ids=(end,))
    writer = LanguageModel(imported.model(), imported.config, imported.generation)
    found = [token.id for token in stream(writer, prompt, Sampling(temperature=0), max_tokens=12)]
    assert found == cut[:-1]
