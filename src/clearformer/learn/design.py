"""Exercises of chapter 9: recurrence, convolution, and attention as a soft key-value store."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw


def recurrent(x: Tensor, inputs: Tensor, states: Tensor) -> Tensor:
    state = x.new_zeros(x.shape[0], states.shape[0])  # (B, E)
    outputs = []
    for i in range(x.shape[1]):  # step i needs step i - 1
        state = torch.tanh(x[:, i] @ inputs.T + state @ states.T)
        outputs.append(state)
    return torch.stack(outputs, dim=1)  # (B, T, E)


def causal_convolution(x: Tensor, kernel: Tensor) -> Tensor:
    size = kernel.shape[0]
    padded = F.pad(x, (0, 0, size - 1, 0))  # zeros before the first token
    windows = padded.unfold(1, size, 1)  # (B, T, E, K)
    return torch.einsum("btek,kef->btf", windows, kernel)  # (B, T, F)


def layers_needed(distance: int, kernel: int) -> int:
    return math.ceil(distance / (kernel - 1))


def look_up(query: Tensor, keys: Tensor, values: Tensor, sharpness: float) -> Tensor:
    weights = (sharpness * query @ keys.T).softmax(dim=-1)  # (Q, N)
    return weights @ values  # (Q, E)


def _sequences() -> list[Case]:
    return [(draw(2, 5, 4), draw(4, 4, seed=1) / 2, draw(4, 4, seed=2) / 2)]


def _signals() -> list[Case]:
    return [(draw(2, 6, 3), draw(4, 3, 5, seed=1)), (draw(1, 5, 2, seed=2), draw(3, 2, 2, seed=3))]


def _distances() -> list[Case]:
    return [(1, 3), (64, 3), (12, 5), (63, 64), (100, 8)]


def _stores() -> list[Case]:
    return [(draw(3, 4), draw(6, 4, seed=1), draw(6, 5, seed=2), sharpness)
            for sharpness in (1.0, 8.0)]  # fmt: skip


def _hard(query: Tensor, keys: Tensor, values: Tensor, sharpness: float) -> Tensor:
    return values[(query @ keys.T).argmax(dim=-1)]


def _convolved(x: Tensor, kernel: Tensor, before: int, after: int) -> Tensor:
    windows = F.pad(x, (0, 0, before, after)).unfold(1, kernel.shape[0], 1)
    return torch.einsum("btek,kef->btf", windows, kernel)


def _forgetful(x: Tensor, inputs: Tensor, states: Tensor) -> Tensor:
    return torch.tanh(x @ inputs.T)


def _summed(x: Tensor, inputs: Tensor, states: Tensor) -> Tensor:
    state, outputs = x.new_zeros(x.shape[0], states.shape[0]), []
    for i in range(x.shape[1]):
        state = x[:, i] @ inputs.T + state @ states.T
        outputs.append(state)
    return torch.stack(outputs, dim=1)


def _previous_input(x: Tensor, inputs: Tensor, states: Tensor) -> Tensor:
    before = F.pad(x, (0, 0, 1, 0))[:, :-1]
    return torch.tanh(x @ inputs.T + before @ states.T)


EXERCISES = (
    Exercise(
        number="9.1",
        title="A recurrent network, unrolled",
        task="x is (B, T, E), inputs and states are (E, E) and act on column vectors. Return all "
        "states (B, T, E) of h_i = tanh(inputs x_i + states h_(i-1)), with h before the first "
        "token zero.",
        answer=recurrent,
        cases=_sequences,
        hints=(
            "There is no way around a loop over the tokens: that is the chapter's point.",
            "Keep one state (B, E), and a list of what it was after each step.",
            "torch.stack(outputs, dim=1) puts the steps where the tokens were.",
        ),
        mistakes=(
            Mistake(
                _forgetful,
                "the state is never used: each output knows its own token only",
            ),
            Mistake(
                _previous_input,
                "it uses the previous input, not the previous state: nothing from two steps ago "
                "arrives",
            ),
            Mistake(
                _summed,
                "tanh is missing: the whole network would be one linear map",
            ),
            Mistake(
                lambda x, inputs, states: recurrent(x.flip(1), inputs, states).flip(1),
                "it runs from the last token to the first",
            ),
        ),
    ),
    Exercise(
        number="9.2",
        title="A causal convolution",
        task="x is (B, T, E), kernel is (K, E, F). Return (B, T, F): output i is the sum over s = "
        "0 ... K - 1 of x_(i - (K-1) + s) times kernel[s], with zeros before the first token; no "
        "output sees a later input.",
        answer=causal_convolution,
        cases=_signals,
        hints=(
            "Pad K - 1 zeros before the sequence, nothing after it.",
            "A window of K tokens ends at token i; kernel[K - 1] meets token i itself.",
            "F.pad(x, (0, 0, K - 1, 0)) pads the second-last axis in front.",
        ),
        mistakes=(
            Mistake(
                lambda x, kernel: _convolved(
                    x, kernel, kernel.shape[0] // 2, (kernel.shape[0] - 1) // 2
                ),
                "padded on both sides, as convolutions of pictures are: outputs see later tokens",
            ),
            Mistake(
                lambda x, kernel: _convolved(x, kernel, 0, kernel.shape[0] - 1),
                "padded at the end: each output sees the tokens after it instead of those before",
            ),
            Mistake(
                lambda x, kernel: _convolved(x, kernel.flip(0), kernel.shape[0] - 1, 0),
                "the kernel is the wrong way round: kernel[K - 1] belongs to the token itself",
            ),
            Mistake(
                lambda x, kernel: _convolved(x, kernel, 0, 0),
                "nothing is padded: the first K - 1 outputs are missing",
            ),
        ),
    ),
    Exercise(
        number="9.3",
        title="How many convolutions for a distance",
        task="How many causal convolutions of `kernel` tokens (no stride, no dilation) must be "
        "stacked, at least, so that an output depends on the input `distance` tokens before it?",
        answer=layers_needed,
        cases=_distances,
        hints=(
            "One layer: output i sees inputs i - (kernel - 1) to i.",
            "Each further layer reaches kernel - 1 tokens further.",
            "Round up.",
        ),
        mistakes=(
            Mistake(
                lambda distance, kernel: math.ceil(distance / kernel),
                "a kernel of K tokens reaches back K - 1: one of them is the token itself",
            ),
            Mistake(
                lambda distance, kernel: distance // (kernel - 1),
                "rounded down: the last tokens of the way need a layer too",
            ),
            Mistake(
                lambda distance, kernel: math.ceil(math.log(distance + 1, kernel)),
                "the reach grows by kernel - 1 with each layer; it multiplies only with dilation",
            ),
            Mistake(
                lambda distance, kernel: 1,
                "one layer reaches kernel - 1 tokens back: that is attention you are thinking of",
            ),
        ),
    ),
    Exercise(
        number="9.4",
        title="A key-value store that answers softly",
        task="query is (Q, D), keys (N, D), values (N, E). Return for each query the sum of all "
        "values, weighted by softmax(sharpness * dot product with their key), (Q, E). The larger "
        "the sharpness, the more it is a dictionary.",
        answer=look_up,
        cases=_stores,
        hints=(
            "It is attention (exercise 3.2) with a number in the place of 1/sqrt(d).",
            "Scores are (Q, N): one for each query and item of the store.",
            "softmax over the items, the last axis; then times the values.",
        ),
        mistakes=(
            Mistake(
                _hard,
                "this is the dictionary: one item is returned. Softened, all items are, weighted",
            ),
            Mistake(
                lambda query, keys, values, sharpness: (query @ keys.T).softmax(dim=-1) @ values,
                "sharpness is not used",
            ),
            Mistake(
                lambda query, keys, values, sharpness: (
                    sharpness * (query @ keys.T).softmax(dim=-1) @ values
                ),
                "sharpness multiplies the weights: then they no longer sum to one. It belongs "
                "inside softmax",
            ),
            Mistake(
                lambda query, keys, values, sharpness: (
                    (sharpness * query @ keys.T).softmax(dim=0) @ values
                ),
                "softmax runs over the queries: the weights of one query, over all items, sum to "
                "one",
            ),
        ),
    ),
)
