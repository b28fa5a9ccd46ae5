"""Comparing an exported model with the original."""

import pytest
import torch

from clearformer.builder import build
from clearformer.config import GenerationDefaults
from clearformer.hub.compare import compare
from clearformer.hub.exporting import to_safetensors
from clearformer.text import Bytes


@pytest.mark.parametrize("family", ["gpt2", "bert", "original"])
def test_compare_detects_changed_weights(small, scrambled, tmp_path, family):
    config, generation = small(family, vocabulary=256), GenerationDefaults()
    if family == "original":
        generation = GenerationDefaults(start_id=1, end_ids=(0,))
    model = scrambled(build(config)).train()
    path = to_safetensors(model, config, generation, Bytes(), tmp_path / "x.safetensors").path
    difference, tokens = compare(model, path, config, generation)
    assert difference == 0.0
    assert (tokens > 0) == (family != "bert")
    assert model.training
    with torch.no_grad():
        next(model.parameters())[3] += 0.1
    with pytest.raises(ValueError, match="gives other logits"):
        compare(model, path, config, generation)
