from dataclasses import replace

import pytest
import torch

from clearformer.builder import build
from clearformer.compressor.proof import claim, prove
from clearformer.config import Full
from clearformer.model import Model
from clearformer.text import Bytes


@pytest.mark.parametrize("family", ["modern", "xl"])
def test_proof_matches_claim(byte_model, text, family):
    seen = []
    proof = prove(byte_model(family), text, progress=lambda *numbers: seen.append(numbers))
    assert abs(8 * proof.packed.code_size - proof.claim.bits) < 64 + 0.001 * proof.claim.bits
    assert seen[-1] == (2 * len(text), 2 * len(text))
    lines = proof.lines()
    assert lines[0].startswith("the model claims ")
    assert lines[-1].endswith("the same: proven")


def test_proof_with_online_learning(byte_model, text):
    proof = prove(byte_model(), text, online=True, streams=2)
    assert proof.claim.online is not None
    assert "learning online" in proof.lines()[0]


def test_rejects_pattern_with_lookahead(small, text):
    config = replace(small("modern", vocabulary=256), patterns=(Full(),))
    model = Model(build(config), config, Bytes())
    with pytest.raises(ValueError, match=r"^this model cannot decode: it needs tokens"):
        prove(model, text)


def test_rejects_module_with_lookahead(byte_model, text):
    model = byte_model()
    hidden = model.module.hidden

    def ahead(tokens, *more, **options):
        return hidden(tokens, *more, **options) + 0.2 * torch.roll(hidden(tokens), -1, 1)

    model.module.hidden = ahead
    with pytest.raises(ValueError, match=r"not there yet \(its prediction after token 0 changes"):
        prove(model, text)


def test_rejects_probabilities_that_sum_to_more_than_one(byte_model, text):
    model = byte_model()
    loss = model.module.head.loss
    model.module.head.loss = lambda *given: (0.5 * loss(*given)[0], loss(*given)[1])
    with pytest.raises(ValueError, match=r"^the claim is not proven: by its loss the text has "):
        prove(model, text)


def test_empty_text_and_single_byte(byte_model):
    assert claim(byte_model(), b"").bits == 0
    assert claim(byte_model(), b"a").bits == 8
    prove(byte_model(), b"")


class LooksAhead(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        y = self.inner(x)
        return y + 0.3 * torch.roll(y, -1, 1)


def test_leak_is_reported_with_finding_of_verify(byte_model, text):
    model = byte_model()
    block = model.module.stack.blocks[1]
    block.feed_forward = LooksAhead(block.feed_forward)
    with pytest.raises(ValueError, match=r"not there yet \(its .*; verify: future-leak at stack"):
        prove(model, text)
