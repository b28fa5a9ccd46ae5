"""Exercises of chapter 5: layer normalization, the feed-forward layer, the block."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw

Part = Callable[[Tensor], Tensor]


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred / (variance + eps).sqrt() * weight + bias  # (B, T, E)


def feed_forward(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
    hidden = torch.relu(x @ up.T + up_bias)  # (B, T, F)
    return hidden @ down.T + down_bias  # (B, T, E)


def block(x: Tensor, attention: Part, feed_forward: Part, norm1: Part, norm2: Part) -> Tensor:
    x = norm1(attention(x) + x)
    return norm2(feed_forward(x) + x)  # (B, T, E)


def _norms() -> list[Case]:
    x, weight, bias = draw(2, 4, 6), draw(6, seed=1), draw(6, seed=2)
    return [(x, weight, bias, 0.1), (3 * x + 1, weight, bias, 0.5)]


def _layers() -> list[Case]:
    return [
        (draw(2, 3, 4), draw(16, 4, seed=1), draw(16, seed=2), draw(4, 16, seed=3), draw(4, seed=4))
    ]


def _parts() -> list[Case]:
    def centre(x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True)

    def scale(x: Tensor) -> Tensor:
        return x / (x.square().mean(dim=-1, keepdim=True) + 0.1).sqrt()

    def mix(x: Tensor) -> Tensor:
        return x.cumsum(dim=1)

    return [(draw(2, 4, 6), mix, torch.tanh, scale, centre)]


def _normalized(x: Tensor, weight: Tensor, bias: Tensor, eps: float, *axes: int) -> Tensor:
    centred = x - x.mean(dim=axes, keepdim=True)
    variance = centred.square().mean(dim=axes, keepdim=True)
    return centred / (variance + eps).sqrt() * weight + bias


EXERCISES = (
    Exercise(
        number="5.1",
        title="Layer normalization",
        task="x is (B, T, E), weight and bias are (E,). Return (x - mean) / sqrt(variance + eps) * "
        "weight + bias, with mean and variance of each token's own E numbers, as nn.LayerNorm; the "
        "variance divides by E.",
        answer=layer_norm,
        cases=_norms,
        hints=(
            "The seed: it is applied over the embedding dimension only.",
            "keepdim=True keeps the axis, so that the mean of a token is taken from its numbers.",
            "x.var divides by E - 1 unless it is given correction=0; eps goes under the root.",
        ),
        mistakes=(
            Mistake(
                lambda x, weight, bias, eps: _normalized(x, weight, bias, eps, 1),
                "normalized along the tokens: then tokens exchange information outside of "
                "attention. Mean and variance belong to one token, dim=-1",
            ),
            Mistake(
                lambda x, weight, bias, eps: _normalized(x, weight, bias, eps, 0),
                "normalized along the batch, as batch norm does: a token's output must not depend "
                "on other sequences",
            ),
            Mistake(
                lambda x, weight, bias, eps: _normalized(x, weight, bias, eps, 1, 2),
                "one mean for a whole sequence: each token has its own",
            ),
            Mistake(
                lambda x, weight, bias, eps: (
                    (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + eps).sqrt() * weight
                    + bias
                ),
                "the variance divides by E - 1, as torch.var does by default: use correction=0",
            ),
            Mistake(
                lambda x, weight, bias, eps: (
                    (x - x.mean(-1, keepdim=True))
                    / (x.var(-1, keepdim=True, correction=0).sqrt() + eps)
                    * weight
                    + bias
                ),
                "eps is added to the standard deviation: it belongs under the root, to the "
                "variance",
            ),
            Mistake(
                lambda x, weight, bias, eps: (
                    (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps) * weight + bias
                ),
                "eps is added to the standard deviation, and torch.std divides by E - 1: use "
                "var(correction=0), add eps, and take the root",
            ),
        ),
    ),
    Exercise(
        number="5.2",
        title="The feed-forward layer",
        task="Apply eq. 16 to x (B, T, E): up is (F, E) and down is (E, F), as in nn.Linear, each "
        "with a bias, and ReLU between.",
        answer=feed_forward,
        cases=_layers,
        hints=(
            "It is the same small network for each token: no loop over tokens is needed.",
            "Matrices of nn.Linear are (out, in): x @ up.T.",
            "Up, bias, ReLU, down, bias.",
        ),
        mistakes=(
            Mistake(
                lambda x, up, up_bias, down, down_bias: (x @ up.T + up_bias) @ down.T + down_bias,
                "ReLU is missing: two linear maps in a row are one linear map",
            ),
            Mistake(
                lambda x, up, up_bias, down, down_bias: torch.relu(
                    torch.relu(x @ up.T + up_bias) @ down.T + down_bias
                ),
                "a second ReLU at the end: then the layer can only add to the residual stream, "
                "never subtract",
            ),
            Mistake(
                lambda x, up, up_bias, down, down_bias: torch.relu(x @ up.T) @ down.T + down_bias,
                "the first bias is missing",
            ),
            Mistake(
                lambda x, up, up_bias, down, down_bias: (
                    (torch.relu(x @ up.T) + up_bias) @ down.T + down_bias
                ),
                "the first bias is added after ReLU: it must decide where ReLU bends",
            ),
            Mistake(
                lambda x, up, up_bias, down, down_bias: torch.relu(
                    (x @ up.T + up_bias) @ down.T + down_bias
                ),
                "ReLU is at the end: it belongs between the two linear maps",
            ),
        ),
    ),
    Exercise(
        number="5.3",
        title="The block",
        task="Put a block together as the post does (post-norm, eq. 14): attention, residual, "
        "norm1, feed_forward, residual, norm2. The four parts are functions of a tensor.",
        answer=block,
        cases=_parts,
        hints=(
            "Residual connections go around both parts, before the normalization.",
            "Two lines: one for attention with norm1, one for feed_forward with norm2.",
            "The second residual starts from what norm1 gave, not from the input of the block.",
        ),
        mistakes=(
            Mistake(
                lambda x, attention, feed_forward, norm1, norm2: (
                    (h := x + attention(norm1(x))) + feed_forward(norm2(h))
                ),
                "this is pre-norm (eq. 15), as in GPT-2: it is a good block, but the post "
                "normalizes after the residual connection",
            ),
            Mistake(
                lambda x, attention, feed_forward, norm1, norm2: norm2(
                    feed_forward(norm1(attention(x)))
                ),
                "both residual connections are missing",
            ),
            Mistake(
                lambda x, attention, feed_forward, norm1, norm2: norm2(
                    feed_forward(norm1(attention(x) + x)) + x
                ),
                "the second residual starts at the input of the block: what attention found goes "
                "around it only through feed_forward. Add the output of norm1",
            ),
            Mistake(
                lambda x, attention, feed_forward, norm1, norm2: (
                    (h := x + norm1(attention(x))) + norm2(feed_forward(h))
                ),
                "the parts are normalized before they are added: the post normalizes the sum",
            ),
            Mistake(
                lambda x, attention, feed_forward, norm1, norm2: norm1(attention(x) + x),
                "the feed-forward half is missing",
            ),
            Mistake(
                lambda x, attention, feed_forward, norm1, norm2: norm2(
                    feed_forward(norm1(attention(x) + x))
                ),
                "the residual connection around feed_forward is missing",
            ),
        ),
    ),
)
