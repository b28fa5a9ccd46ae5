"""One token after the other: the same as without a cache, and reproducible."""

from dataclasses import replace

import pytest
import torch

from clearformer.build import build, pasts
from clearformer.config import HiddenMemory
from clearformer.families import preset
from clearformer.generate.choose import Sampling
from clearformer.generate.stream import stream


def small(family):
    config = preset(family)
    key_heads = 1 if config.key_heads else None
    return replace(
        config,
        vocabulary=20,
        length=16,
        layers=2,
        width=16,
        heads=2,
        hidden=32,
        key_heads=key_heads,
    )


@pytest.mark.parametrize("family", ["generator", "gpt2", "modern", "sparse", "xl"])
def test_greedy_text_is_that_of_the_whole_model(family):
    config = small(family)
    model = build(config, seed=1).eval()
    prompt = [3, 1, 4, 1, 5]
    found = [t.id for t in stream(model, config, prompt, Sampling(temperature=0), most=11)]
    text = list(prompt)
    for _ in range(11):
        with torch.inference_mode():
            text.append(int(model(torch.tensor([text]))[0, -1].argmax()))
    assert found == text[len(prompt) :]


def test_a_seed_is_a_text():
    config = small("gpt2")
    model = build(config)

    def draw(seed):
        return [t.id for t in stream(model, config, [1], Sampling(), most=12, seed=seed)]

    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


def test_it_goes_on_past_the_context():
    config = small("gpt2")
    tokens = list(stream(build(config), config, [1, 2], Sampling(), most=60))
    assert len(tokens) == 60
    assert all(token.bits >= 0 and 0 <= token.uniform < 1 for token in tokens)


def test_a_memory_goes_on_without_reading_again():
    """Far past the context, with a prompt longer than it: one long stream, token by token."""
    config = replace(small("xl"), past=HiddenMemory(length=7))
    model = build(config, seed=1).eval()
    prompt = torch.randint(20, (45,)).tolist()
    found = [t.id for t in stream(model, config, prompt, Sampling(temperature=0), most=40)]
    memory = pasts(config, batch=1, capacity=1)
    expected, pieces = [], list(torch.tensor([prompt]).split(16, dim=1))
    with torch.inference_mode():
        while len(expected) < 40:
            for piece in pieces:
                logits = model(piece, pasts=memory)
                for past in memory:
                    past.advance()
            expected.append(int(logits[0, -1].argmax()))
            pieces = [torch.tensor([expected[-1:]])]
    assert found == expected


def test_the_training_flag_comes_back():
    config = small("gpt2")
    model = build(config).train()
    list(stream(model, config, [1], Sampling(), most=2))
    assert model.training


def test_an_empty_prompt_is_refused():
    config = small("gpt2")
    with pytest.raises(ValueError, match="the prompt is empty"):
        next(stream(build(config), config, [], Sampling(), most=2))
