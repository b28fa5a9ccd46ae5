"""The probe: infers how to call a module, and states its assumptions."""

import pytest
import torch
from torch import nn

from clearformer.verification.check import read_as
from clearformer.verification.probe import Probe, UncallableError


def test_infers_tokens_vectors_and_pairs(probe):
    assert (probe("gpt").vocabulary, probe("gpt").is_language_model) == (50, True)
    assert (probe("seed").vocabulary, probe("seed").width) == (None, 32)
    translator = probe("translator")
    assert translator.form.source == "src"
    assert translator.claim.causal is True
    assert read_as(translator).startswith("encoder-decoder, 6 attentions, 4 heads")


def test_infers_time_first_layout():
    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.pos = nn.Embedding(30, 16), nn.Embedding(32, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32)
            self.head = nn.Linear(16, 30)

        def forward(self, src):  # (T, B)
            x = self.tokens(src) + self.pos(torch.arange(len(src)))[:, None]
            return self.head(self.layer(x))

    probe = Probe(TimeFirst())
    assert probe.form.time_first
    assert "time is the first axis" in probe.notes[0]


def test_passes_causal_mask_if_required():
    class CausalLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x, attn_mask=None):
            return self.inner(x, x, x, attn_mask=attn_mask)[0]

    probe = Probe(CausalLayer())
    assert probe.notes == ["a causal mask is passed as attn_mask"]


def test_reports_module_that_cannot_be_called():
    class Odd(nn.Module):
        def forward(self, left, right, middle):
            raise RuntimeError("three of a kind")

    with pytest.raises(
        UncallableError, match=r"Odd.forward\(left, right, middle\) could not be called"
    ):
        Probe(Odd())


def test_special_ids_are_avoided(probe):
    model = nn.Sequential(nn.Embedding(9, 8, padding_idx=0), nn.Linear(8, 9))
    assert 0 not in Probe(model).ordinary_ids.tolist()


def test_change_affects_one_position(probe):
    made = probe("gpt")
    changed = made.change(made.base, 1, 2)
    assert (changed.stream != made.base.stream).nonzero().tolist() == [[1, 2]]


class LastOnly(nn.Module):
    """Gives all logits only where targets are passed, as nanoGPT does."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(30, 8), nn.Linear(8, 30)

    def forward(self, idx, targets=None):
        x = self.words(idx).cumsum(1)
        if targets is None:
            return self.head(x[:, [-1]]), None
        logits = self.head(x)
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def test_targets_are_passed_where_only_they_give_every_output():
    probe = Probe(LastOnly())
    assert probe.is_language_model
    assert probe.form.same == ("targets",)
    assert "targets are passed" in probe.notes[0]


class TwoStreams(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 8)
        self.layers = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, article_words, prev_output_tokens):
        return self.layers(self.words(article_words), self.words(prev_output_tokens))


def test_the_stream_is_the_one_that_outputs_belong_to():
    probe = Probe(TwoStreams())
    assert (probe.form.source, probe.form.stream) == ("article_words", "prev_output_tokens")
