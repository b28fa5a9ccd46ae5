"""Which family a config.json speaks of."""

import pytest

from clearformer.hub.gpt2 import GPT2
from clearformer.hub.kinds import KINDS, family_of


def test_families_by_model_type():
    assert family_of({"model_type": "gpt2"}, "here") is GPT2
    assert set(KINDS) == {"gpt2", "bert", "llama", "mistral", "qwen2", "qwen3", "marian"}


@pytest.mark.parametrize("kind", ["t5", None, 3, "bret"])
def test_another_architecture_is_named(kind):
    with pytest.raises(ValueError, match=f"here is of a model_type {kind!r}, which clearformer"):
        family_of({"model_type": kind}, "here")


def test_code_and_quantized_weights_are_refused():
    with pytest.raises(ValueError, match="asks for code of its own"):
        family_of({"model_type": "gpt2", "auto_map": {"AutoModel": "x.py"}}, "here")
    with pytest.raises(ValueError, match="is of quantized weights"):
        family_of({"model_type": "llama", "quantization_config": {"bits": 4}}, "here")
