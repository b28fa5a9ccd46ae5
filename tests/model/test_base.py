"""A module of one's own as a model."""

import pytest
import torch

import clearformer as cf
from clearformer.text import Bytes


def test_custom_module_can_be_wrapped_and_saved(small, tmp_path):
    """Train it in plain PyTorch, wrap it, save it: then every command opens it."""
    config = small("gpt2", vocabulary=256, name="gpt2-mine")
    module = cf.build(config, seed=3)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    tokens = torch.tensor([list(b"abcdefgh")])
    loss = torch.nn.functional.cross_entropy(module(tokens)[0, :-1], tokens[0, 1:])
    loss.backward()
    optimizer.step()
    model = cf.Model(module, config, Bytes())
    again = cf.load(model.save(tmp_path / "mine"))
    torch.testing.assert_close(again.module(tokens), module.eval()(tokens))
    without = cf.Model(module, config)
    assert len(without.generate([97, 98], max_tokens=3)) == 3
    with pytest.raises(ValueError, match="the prompt is a string, but there is no tokenizer"):
        without.generate("ab")
    with pytest.raises(ValueError, match="gpt2-mine has no tokenizer: load it with tokenizer="):
        without.embed("ab")
