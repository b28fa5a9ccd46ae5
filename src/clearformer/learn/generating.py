"""Exercises of chapter 8: the mask, a causal attention, sampling, bits per byte."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.learn.exercise import Case, Exercise, Mistake, draw
from clearformer.learn.forms import ModuleForm

WIDTH, HEADS = 12, 3


def mask_scores(scores: Tensor) -> Tensor:
    length = scores.shape[-1]
    later = torch.ones(length, length, dtype=torch.bool).triu(diagonal=1)
    return scores.masked_fill(later, float("-inf"))  # (B, T, T)


class CausalSelfAttention(nn.Module):
    def __init__(self, k: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.toqueries = nn.Linear(k, k, bias=False)
        self.tokeys = nn.Linear(k, k, bias=False)
        self.tovalues = nn.Linear(k, k, bias=False)
        self.unifyheads = nn.Linear(k, k)

    def forward(self, x: Tensor) -> Tensor:
        b, t, k = x.shape
        s = k // self.heads
        queries, keys, values = (
            part(x).view(b, t, self.heads, s).transpose(1, 2)  # (B, H, T, D)
            for part in (self.toqueries, self.tokeys, self.tovalues)
        )
        scores = queries @ keys.transpose(-2, -1) / s**0.5  # (B, H, T, T)
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(diagonal=1)
        weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
        return self.unifyheads((weights @ values).transpose(1, 2).reshape(b, t, k))


def probabilities(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    kept = logits.topk(top_k, dim=-1).values[..., -1:]  # the smallest logit that is kept
    logits = logits.masked_fill(logits < kept, float("-inf"))
    return (logits / temperature).softmax(dim=-1)  # (B, V)


def bits_per_token(logits: Tensor, tokens: Tensor) -> Tensor:
    # The output at place i predicts token i + 1: the last output has no target.
    log_p = logits[:, :-1].log_softmax(dim=-1)  # (B, T-1, V)
    found = log_p.gather(-1, tokens[:, 1:, None])[..., 0]  # (B, T-1)
    return -found.mean() / math.log(2)


class _Steps(CausalSelfAttention):
    """The same in steps, each of which a wrong answer replaces."""

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.toqueries, self.tokeys, self.tovalues)
        )
        scores = queries @ keys.transpose(-2, -1) / queries.shape[-1] ** 0.5
        y: Tensor = self.unifyheads((self.weights(scores) @ values).transpose(1, 2).flatten(2))
        return y

    def weights(self, scores: Tensor) -> Tensor:
        raise NotImplementedError


class _Unmasked(_Steps):
    def weights(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-1)


class _OneAhead(_Steps):
    def weights(self, scores: Tensor) -> Tensor:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(2)
        return scores.masked_fill(later, -math.inf).softmax(dim=-1)


class _Backwards(_Steps):
    def weights(self, scores: Tensor) -> Tensor:
        earlier = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-1)
        return scores.masked_fill(earlier, -math.inf).softmax(dim=-1)


class _MaskedLate(_Steps):
    def weights(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-1).tril()


def _scores() -> list[Case]:
    return [(draw(2, 5, 5),), (draw(1, 4, 4, seed=1),)]


def _weights() -> list[Case]:
    square = (WIDTH, WIDTH)
    matrices = [draw(*square, seed=seed) / WIDTH**0.5 for seed in range(1, 5)]
    return [(draw(2, 6, WIDTH), *matrices, draw(WIDTH, seed=5))]


def _logits() -> list[Case]:
    return [(draw(3, 6), 0.5, 6), (draw(2, 8, seed=1), 1.5, 3), (300 * draw(2, 5, seed=2), 2.0, 4)]


def _predictions() -> list[Case]:
    tokens = torch.tensor([[1, 4, 2, 0, 3], [3, 3, 0, 1, 2]])
    return [(draw(2, 5, 6), tokens), (3 * draw(2, 5, 7, seed=1), tokens)]


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / math.log(2)


EXERCISES = (
    Exercise(
        number="8.1",
        title="Eq. 13: the mask",
        task="scores is (B, T, T), before softmax. Return them with -inf wherever query i must not "
        "look: at every key j > i.",
        answer=mask_scores,
        cases=_scores,
        hints=(
            "Rows are queries, columns are keys: what is forbidden lies above the diagonal.",
            "torch.ones(T, T, dtype=torch.bool).triu(diagonal=1) is True there.",
            "masked_fill makes a new tensor; the post's indexing would change its argument.",
        ),
        mistakes=(
            Mistake(
                lambda scores: scores.tril(),
                "the later keys get a score of 0, and exp(0) is 1: they still take part. It must "
                "be -inf",
            ),
            Mistake(
                lambda scores: scores.masked_fill(
                    torch.ones(scores.shape[-2:], dtype=torch.bool).triu(), -math.inf
                ),
                "the diagonal is hidden too: a token must see itself, and the first one would see "
                "nothing at all (NaN after softmax)",
            ),
            Mistake(
                lambda scores: scores.masked_fill(
                    torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-1), -math.inf
                ),
                "the past is hidden and the future is seen: rows are queries, so the forbidden "
                "part is above the diagonal",
            ),
            Mistake(
                lambda scores: scores.masked_fill(
                    torch.ones(scores.shape[-2:], dtype=torch.bool).triu(2), -math.inf
                ),
                "each token still sees the next one, which is the answer: the mask starts one "
                "above the diagonal",
            ),
        ),
    ),
    Exercise(
        number="8.2",
        title="A causal self-attention module",
        task="Write the post's SelfAttention with its mask as a module: __init__(self, k, heads) "
        "with the linear layers toqueries, tokeys, tovalues (k to k, no bias) and unifyheads (k to "
        "k, with bias), forward(self, x) from (B, T, k) to (B, T, k). Scale by the root of a "
        "head's width. Besides values and gradients, verify looks at it.",
        answer=CausalSelfAttention,
        form=ModuleForm(
            (WIDTH, HEADS),
            (
                "toqueries.weight",
                "tokeys.weight",
                "tovalues.weight",
                "unifyheads.weight",
                "unifyheads.bias",
            ),
            "causal-attention",
        ),
        cases=_weights,
        hints=(
            "Start from the class of chapter 4 and from exercise 8.1.",
            "Order: dot products, scale, mask, softmax, values, merge, unifyheads.",
            "Split into heads by view(b, t, heads, s) and transpose(1, 2), never by a view alone.",
        ),
        mistakes=(
            Mistake(
                _Unmasked,
                "the mask is missing: each output sees the tokens that it has to predict",
            ),
            Mistake(
                _OneAhead,
                "each token still sees the next one: the mask starts one above the diagonal",
            ),
            Mistake(
                _Backwards,
                "it looks ahead and not back: the mask hides the wrong triangle",
            ),
            Mistake(
                _MaskedLate,
                "the mask comes after softmax: the weights of a row no longer sum to one, and "
                "later tokens still change the others' weights. Mask the scores",
            ),
        ),
    ),
    Exercise(
        number="8.3",
        title="Temperature and top-k",
        task="logits is (B, V). Return the probabilities from which the next token is drawn: only "
        "the top_k largest logits of a row take part, divided by temperature, then softmax. Logits "
        "may be in the hundreds.",
        answer=probabilities,
        cases=_logits,
        hints=(
            "Temperature below 1 makes large differences larger: divide.",
            "logits.topk(top_k).values[..., -1:] is the smallest logit that stays.",
            "Set the others to -inf before softmax, so that the rest sums to one.",
        ),
        mistakes=(
            Mistake(
                lambda logits, temperature, top_k: (
                    logits.masked_fill(logits < logits.topk(top_k).values[..., -1:], -math.inf)
                    * temperature
                ).softmax(dim=-1),
                "multiplied by the temperature: then a low temperature makes the text wilder",
            ),
            Mistake(
                lambda logits, temperature, top_k: (logits / temperature).softmax(dim=-1),
                "every token takes part: top_k is not used",
            ),
            Mistake(
                lambda logits, temperature, top_k: (
                    logits.masked_fill(
                        logits < logits.topk(top_k).values[..., -1:], -math.inf
                    ).softmax(dim=-1)
                    / temperature
                ),
                "the probabilities are divided, not the logits: they no longer sum to one, and "
                "their order and ratios do not change",
            ),
            Mistake(
                lambda logits, temperature, top_k: (
                    (logits / temperature)
                    .softmax(dim=-1)
                    .masked_fill(logits < logits.topk(top_k).values[..., -1:], 0.0)
                ),
                "the tokens that are left do not sum to one: cut before softmax, or normalize "
                "again",
            ),
        ),
    ),
    Exercise(
        number="8.4",
        title="Bits per token",
        task="logits is (B, T, V), tokens is (B, T); the output at place i predicts token i + 1. "
        "Return the average over all predicted tokens of -log2 p(token), one number: bits per byte "
        "if tokens are bytes.",
        answer=bits_per_token,
        cases=_predictions,
        hints=(
            "T outputs have T - 1 targets: nobody knows what follows the last token.",
            "Cut the last output and the first token: logits[:, :-1] and tokens[:, 1:].",
            "torch's cross-entropy is in nats: divide by log(2).",
        ),
        mistakes=(
            Mistake(
                lambda logits, tokens: _loss(logits, tokens),
                "not shifted: each output is scored against its own token, which it has seen. "
                "Output i predicts token i + 1",
            ),
            Mistake(
                lambda logits, tokens: _loss(logits[:, :-1], tokens[:, 1:]) * math.log(2),
                "these are nats: divide by log(2) for bits",
            ),
            Mistake(
                lambda logits, tokens: _loss(logits[:, 1:], tokens[:, :-1]),
                "shifted the wrong way: each output is scored against the token before it",
            ),
            Mistake(
                lambda logits, tokens: _loss(logits[:, :-1], tokens[:, 1:]) * tokens[:, 1:].numel(),
                "this is the sum: divide by the number of predicted tokens, or longer texts look "
                "worse",
            ),
            Mistake(
                lambda logits, tokens: (
                    _loss(logits[:, :-1], tokens[:, 1:]) * tokens[:, 1:].numel() / tokens.numel()
                ),
                "divided by all tokens: the first of each row is not predicted, so the figure "
                "comes out too good",
            ),
        ),
    ),
)
