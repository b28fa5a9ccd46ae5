"""Sequences of different lengths in one step: the logits of the plain model, in any company."""

import pytest
import torch

from clearformer import config as c
from clearformer.inference.caches import inference_caches
from clearformer.inference.ragged_decode import RaggedDecoder

TEXTS = [[1, 2, 3, 4], [5], [6, 7, 8, 9, 10, 11, 12], [3, 3]]
CASES = {
    "learned": {},
    "rotary": {"position": c.Rotary()},
    "alibi": {"position": c.ALiBi()},
    "sinusoidal": {"position": c.Sinusoidal()},
    "grouped": {"position": c.Rotary(), "key_heads": 1, "query_key_norm": c.RMSNorm()},
    "local": {"patterns": (c.Causal() & c.Local(3), c.Causal())},
    "post": {"residual": "post"},
}


@torch.inference_mode()
def caches_of(model, text, capacity=16):
    """The caches after all tokens of a text but the last."""
    caches = inference_caches(model.config, 1, capacity)
    if len(text) > 1:
        model.module.hidden(torch.tensor([text[:-1]]), caches=caches)
        for cache in caches:
            cache.advance()
    return caches


def step(model, texts):
    caches = [caches_of(model, text) for text in texts]
    logits = RaggedDecoder(model.module)(torch.tensor([text[-1] for text in texts]), caches)
    assert [each[0].length for each in caches] == [len(text) for text in texts]
    return logits


@pytest.mark.parametrize("name", CASES)
def test_the_logits_are_those_of_the_whole_texts(name, writer):
    model = writer("gpt2", vocabulary=40, length=16, heads=2, **CASES[name])
    found = step(model, TEXTS)
    for logits, text in zip(found, TEXTS, strict=True):
        with torch.inference_mode():
            whole = model.module(torch.tensor([text]))[0, -1]
        assert torch.allclose(logits, whole, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_company_changes_no_bit(name, writer):
    model = writer("gpt2", vocabulary=40, length=16, heads=2, **CASES[name])
    together = step(model, TEXTS)
    for row, text in enumerate(TEXTS):
        assert torch.equal(step(model, [text])[0], together[row])
    assert torch.equal(step(model, TEXTS[::-1]), together.flip(0))


def test_an_embedding_that_is_not_written_out_is_called(writer, monkeypatch):
    model = writer("gpt2", vocabulary=40, length=16)
    expected = step(model, TEXTS)
    monkeypatch.setattr(
        "clearformer.inference.ragged_decode.embed_function", lambda embedding, capacity: None
    )
    assert torch.allclose(step(model, TEXTS), expected, atol=1e-6)
