import numpy as np
import pytest
import torch

from clearformer.compressor.causality import find_leak

TOKENS = np.arange(12) * 7 % 256


@pytest.mark.parametrize("family", ["modern", "gpt2", "sparse", "xl"])
def test_causal_models_have_no_leak(byte_model, family):
    assert find_leak(byte_model(family).module, TOKENS, 256) is None
    assert find_leak(byte_model(family).module, TOKENS[:1], 256) is None


def test_int8_model_has_no_leak(byte_model):
    assert find_leak(byte_model().quantize().module, TOKENS, 256) is None


@pytest.mark.parametrize("ahead", [1, 5])
def test_finds_lookahead(byte_model, ahead):
    module = byte_model().module
    hidden = module.hidden
    module.hidden = lambda tokens: hidden(tokens) + 0.1 * torch.roll(hidden(tokens), -ahead, 1)
    leak = find_leak(module, TOKENS, 256)
    assert leak is not None
    assert leak.position < leak.changed <= leak.position + ahead
    assert str(leak).startswith(f"its prediction after token {leak.position} changes when token")
