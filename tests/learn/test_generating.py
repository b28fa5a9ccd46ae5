"""Chapter 8: wrong answers as people write them; modules are judged by verify too."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer.core.attention import Attention
from clearformer.core.generate import draw
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal
from clearformer.learn import generating as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge

INF = float("inf")


def zeros(scores):
    return torch.tril(scores)


def hides_itself(scores):
    return torch.where(torch.ones_like(scores).tril(-1) > 0, scores, -INF)


def hides_the_past(scores):
    return torch.where(torch.ones_like(scores).triu() > 0, scores, -INF)


def one_ahead(scores):
    return torch.where(torch.ones_like(scores).tril(1) > 0, scores, -INF)


def kept(logits, top_k):
    return torch.where(logits >= logits.sort(-1).values[:, [-top_k]], logits, -INF)


def multiplied(logits, temperature, top_k):
    return F.softmax(kept(logits, top_k) * temperature, -1)


def every_token(logits, temperature, top_k):
    return F.softmax(logits / temperature, -1)


def divided_probabilities(logits, temperature, top_k):
    return F.softmax(kept(logits, top_k), -1) / temperature


def cut_late(logits, temperature, top_k):
    return F.softmax(logits / temperature, -1) * (kept(logits, top_k) > -INF)


def surprise(logits, tokens):
    return F.cross_entropy(logits.transpose(1, 2), tokens, reduction="none") / math.log(2)


def not_shifted(logits, tokens):
    return surprise(logits, tokens).mean()


def nats(logits, tokens):
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:])


def shifted_back(logits, tokens):
    return surprise(logits[:, 1:], tokens[:, :-1]).mean()


def total(logits, tokens):
    return surprise(logits[:, :-1], tokens[:, 1:]).sum()


def by_all_tokens(logits, tokens):
    return surprise(logits[:, :-1], tokens[:, 1:]).sum() / tokens.numel()


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("8.1", zeros, "exp(0) is 1"),
        ("8.1", hides_itself, "the diagonal is hidden too"),
        ("8.1", hides_the_past, "the past is hidden"),
        ("8.1", one_ahead, "still sees the next one"),
        ("8.3", multiplied, "multiplied by the temperature"),
        ("8.3", every_token, "top_k is not used"),
        ("8.3", divided_probabilities, "the probabilities are divided"),
        ("8.3", cut_late, "do not sum to one"),
        ("8.4", not_shifted, "not shifted"),
        ("8.4", nats, "these are nats"),
        ("8.4", shifted_back, "shifted the wrong way"),
        ("8.4", total, "this is the sum"),
        ("8.4", by_all_tokens, "divided by all tokens"),
    ],
)
def test_wrong_answer_gets_its_own_message(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


class Mine(nn.Module):
    """A causal self-attention as somebody else would write it; the tests below break it."""

    diagonal = 1

    def __init__(self, k, heads):
        super().__init__()
        self.k, self.heads = k, heads
        self.tokeys, self.toqueries = nn.Linear(k, k, bias=False), nn.Linear(k, k, bias=False)
        self.tovalues, self.unifyheads = nn.Linear(k, k, bias=False), nn.Linear(k, k)

    def split(self, x):
        return torch.stack(x.chunk(self.heads, dim=-1), dim=1)

    def scale(self):
        return math.sqrt(self.k // self.heads)

    def weights(self, scores):
        later = torch.ones_like(scores, dtype=torch.bool).triu(self.diagonal)
        return torch.softmax(torch.where(later, -INF, scores), dim=-1)

    def forward(self, x):
        q, k, v = (self.split(part(x)) for part in (self.toqueries, self.tokeys, self.tovalues))
        y = self.weights(q @ k.mT / self.scale()) @ v
        return self.unifyheads(torch.cat(y.unbind(1), dim=-1))


class Unmasked(Mine):
    diagonal = 99


class OneAhead(Mine):
    diagonal = 2


class LooksAhead(Mine):
    def weights(self, scores):
        earlier = torch.ones_like(scores, dtype=torch.bool).tril(-1)
        return torch.softmax(torch.where(earlier, -INF, scores), dim=-1)


class MaskedLate(Mine):
    def weights(self, scores):
        return torch.softmax(scores, dim=-1) * torch.ones_like(scores).tril()


class Unscaled(Mine):
    def scale(self):
        return 1.0


class ScaledByWidth(Mine):
    def scale(self):
        return math.sqrt(self.k)


class HeadsByView(Mine):
    def split(self, x):
        return x.reshape(x.shape[0], self.heads, x.shape[1], -1)


class WrongAxis(Mine):
    def weights(self, scores):
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        return torch.softmax(torch.where(later, -INF, scores), dim=-2)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Unmasked, "the mask is missing"),
        (OneAhead, "still sees the next one"),
        (LooksAhead, "hides the wrong triangle"),
        (MaskedLate, "the mask comes after softmax"),
        # no known mistake of the exercise: verify's catalogue names them
        (Unscaled, "verify finds scale-missing"),
        (ScaledByWidth, "verify finds scale-by-model-width"),
        (HeadsByView, "verify finds heads-mixed-by-view"),
        (WrongAxis, "verify finds softmax-axis"),
    ],
)
def test_wrong_module_is_named(answer, said):
    verdict = judge(find("8.2"), answer)
    assert not verdict
    assert said in verdict.message


def test_module_in_another_style_passes():
    verdict = judge(find("8.2"), Mine)
    assert verdict, verdict
    assert verdict.message.endswith("agree in 1 case, and verify finds nothing")


def test_solutions_are_those_of_core():
    theirs, ours = solutions.CausalSelfAttention(12, 3), Attention(12, 3, bias=False)
    qkv = (theirs.toqueries.weight, theirs.tokeys.weight, theirs.tovalues.weight)
    out = theirs.unifyheads
    ours.load_state_dict(
        {"project.weight": torch.cat(qkv), "output.weight": out.weight, "output.bias": out.bias}
    )
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(theirs(x), ours(x, Mask(Causal())))
    logits = torch.randn(1, 7)
    shares = solutions.probabilities(logits, 0.5, 3)[0]
    ordered = shares.sort(descending=True).values.cumsum(0)
    for uniform in (0.05, 0.5, 0.95):
        place = int((ordered <= uniform).sum())
        assert draw(logits[0], uniform, 0.5, 3) == int(shares.argsort(descending=True)[place])
