"""The page's code is that of `clearformer compress`."""

import pytest

from clearformer.compressor.codec import compress
from clearformer.explore.coding import coding
from clearformer.explore.limits import Limits
from clearformer.http_server.errors import Problem
from clearformer.model import Model

TEXT = "the cat sat on the mat"


@pytest.mark.parametrize("name", ["gpt2", "xl"])
def test_bits_match_compressed_file(loaded, name):
    model = loaded(name)
    found = coding(model, TEXT, Limits())
    bits = sum(token["bits"] for token in found["tokens"])
    own = Model(model.model.transformer, model.config, model.model.tokenizer)
    packed = compress(TEXT.encode(), own, streams=1)
    assert packed.raw_size == 0
    assert abs(packed.code_size - bits / 8) <= 8  # a code ends with a whole word
    assert found["bytes"] == len(TEXT)
    assert found["code_bytes"] == -(-bits // 8)


def test_coder_state_follows_from_intervals(loaded):
    found = coding(loaded("gpt2"), TEXT, Limits())
    low, span, words = 0, 2**64 - 1, 0
    for token in found["tokens"]:
        unit = span >> found["precision"]
        low, span = (low + unit * token["start"]) % 2**64, unit * token["width"]
        if token["words"] > words:
            low, span, words = low << 32 & 2**64 - 1, span << 32, token["words"]
        assert int(token["range"], 16) == span
        assert int(token["low"], 16) == low


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("bert", TEXT, "only a language model|cannot generate|generate"),
        ("original", TEXT, "only a language model with a tokenizer"),
        ("gpt2", "", "the text has no token"),
        ("gpt2", "the " * 2001, "8,004 characters, limit 8,000"),
    ],
)
def test_rejects_unsupported_models_and_texts(loaded, name, text, sentence):
    with pytest.raises(Problem, match=sentence):
        coding(loaded(name), text, Limits())
