"""verify(): the model's state is unchanged, claims are respected, own families pass."""

import random
from dataclasses import replace

import pytest
import torch
from torch import nn

from clearformer.builder import build
from clearformer.families import preset
from clearformer.verification.check import one_thread, verify


def state(model):
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    values = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    return values, [part.training for part in model.modules()]


def test_verify_restores_model_and_random_state(planted):
    model = planted("gpt").train()
    model.blocks[0].eval()
    before, modes = state(model)
    torch.manual_seed(3)
    random.seed(3)
    wanted = torch.rand(4), random.random()
    torch.manual_seed(3)
    random.seed(3)
    verify(model)
    got = torch.rand(4), random.random()
    after, modes_after = state(model)
    assert modes == modes_after
    assert before.keys() == after.keys()
    assert all(before[name].equal(after[name]) for name in before)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert wanted[0].equal(got[0])
    assert wanted[1] == got[1]
    assert torch.get_default_dtype() is torch.float32


def known_presets():
    from clearformer.families import presets

    return [name for name in presets() if name.endswith(("small", "tiny", "mini", "tiny-masked"))]


@pytest.mark.parametrize("name", known_presets())
def test_own_families_pass(name):
    config = preset(name)
    sizes = {"layers": 2, "width": 32, "heads": 4, "hidden": 48, "length": 64, "vocabulary": 60}
    if getattr(config, "key_heads", None):
        sizes["key_heads"] = 2
    if getattr(config, "decoder_layers", None):
        sizes["decoder_layers"] = 2
    torch.manual_seed(0)
    report = verify(build(replace(config, **sizes)))
    assert report, str(report)


def test_claim_can_be_given(planted):
    model = planted("seed")  # bidirectional
    assert verify(model)
    report = verify(model, as_="causal-attention")
    assert [each.name for each in report.problems] == ["future-leak"]
    assert "you said causal-attention" in report.assumptions[0]


def test_rejects_unknown_claim(planted):
    with pytest.raises(ValueError, match="as is 'gpt', but it must be one of causal-lm"):
        verify(planted("seed"), as_="gpt")


def test_only_and_skip(planted):
    wrong = planted("gpt", "* (1.0 / math.sqrt(k.size(-1)))", "", 'float("-inf")', "-1e4")
    assert set(verify(wrong).names) == {"scale-missing", "finite-mask"}
    assert verify(wrong, only=["scale-missing"]).names == ("scale-missing",)
    assert verify(wrong, skip=["scale-missing"]).names == ("finite-mask",)


def test_failing_module_is_explained_by_known_bug(planted):
    report = verify(
        planted("seed_second", "q[:, :, part] @ k[:, :, part]", "q[:, part] @ k[:, part]")
    )
    assert report.names == ("heads-slice-time",)


def test_rejects_unknown_output():
    class Strange(nn.Module):
        def forward(self, x):
            return "text"

    with pytest.raises(
        ValueError, match=r"Strange.forward\(x\) could not be called .* it returned str"
    ):
        verify(Strange())


def test_rejects_module_on_meta_device():
    with torch.device("meta"):
        model = nn.MultiheadAttention(8, 2, batch_first=True)
    with pytest.raises(ValueError, match="on the meta device and has no weights"):
        verify(model)


def test_module_that_returns_loss_is_checked_inside(planted):
    class Loss(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, tokens):
            return self.net(tokens[:, :-1], tokens[:, 1:].contiguous())[1]

    assert verify(Loss(planted("gpt"))).assumptions[-1] == "Loss returns a loss: net is looked at"


def test_module_list_heads_and_first_token_classifier_pass():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.causal = True
            self.heads = nn.ModuleList([Head() for _ in range(2)])
            self.proj = nn.Linear(16, 16)

        def forward(self, x):
            return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(16, 8) for _ in range(3))

        def forward(self, x):
            scores = self.q(x) @ self.k(x).transpose(1, 2) / 8**0.5
            hidden = torch.ones(x.shape[1], x.shape[1]).triu(1) == 1
            return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ self.v(x)

    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(30, 16, padding_idx=0), nn.Embedding(32, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.classes = nn.Linear(16, 2)

        def forward(self, input_ids, attention_mask=None):
            x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1]))
            hidden = None if attention_mask is None else attention_mask == 0
            return self.classes(self.layer(x, src_key_padding_mask=hidden)[:, 0])

    for model in (Heads(), First()):
        report = verify(model)
        assert report, str(report)


def test_threads_are_restored():
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_same_seed_gives_same_report(planted):
    model = planted("gpt", 'float("-inf")', "-1e4")
    one, two = (verify(model, seed=5) for _ in range(2))
    assert one.findings == two.findings


class FailsInTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(12, 12)

    def forward(self, x):
        if self.training:
            raise RuntimeError("no training here")
        return self.mix(x)


def test_a_check_that_the_model_fails_in_is_told_with_its_line():
    report = verify(FailsInTraining())
    reason = report.skipped["dropout_places"]
    assert "the model fails at verification/test_check.py:" in reason
    assert "RuntimeError: no training here" in reason
    text = str(report)
    assert "more could not run)" in text
    assert "not checked: dropout_places (dropout-on-scores, dropout-not-applied)" in text


def test_new_weights_are_the_same_each_time():
    def make():
        return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    verify(make)
    assert torch.random.get_rng_state().equal(before)
