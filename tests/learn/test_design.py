"""Chapter 9: wrong answers as people write them, and the solutions beside torch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer.core.kernels import explicit
from clearformer.core.masks import Mask
from clearformer.learn import design as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def unroll(x, step):
    state, found = torch.zeros_like(x[:, 0]), []
    for token in x.unbind(1):
        state = step(token, state)
        found.append(state)
    return torch.stack(found, 1)


def no_state(x, inputs, states):
    return torch.stack([torch.tanh(F.linear(token, inputs)) for token in x.unbind(1)], 1)


def input_before(x, inputs, states):
    before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
    return torch.tanh(F.linear(x, inputs) + F.linear(before, states))


def linear(x, inputs, states):
    return unroll(x, lambda token, state: F.linear(token, inputs) + F.linear(state, states))


def backwards(x, inputs, states):
    flipped = unroll(
        x.flip(1),
        lambda token, state: torch.tanh(F.linear(token, inputs) + F.linear(state, states)),
    )
    return flipped.flip(1)


def convolved(x, kernel, before, after):
    padded = F.pad(x.transpose(1, 2), (before, after))
    return F.conv1d(padded, kernel.permute(2, 1, 0)).transpose(1, 2)


def centred(x, kernel):
    size = kernel.shape[0]
    return convolved(x, kernel, size // 2, size - 1 - size // 2)


def looks_ahead(x, kernel):
    return convolved(x, kernel, 0, kernel.shape[0] - 1)


def flipped(x, kernel):
    return convolved(x, kernel.flip(0), kernel.shape[0] - 1, 0)


def shorter(x, kernel):
    return convolved(x, kernel, 0, 0)


def whole_kernel(distance, kernel):
    return -(-distance // kernel)


def rounded_down(distance, kernel):
    return int(distance / (kernel - 1))


def always_one(distance, kernel):
    return 1


def dilated(distance, kernel):
    layers = 0
    while kernel**layers < distance + 1:
        layers += 1
    return layers


def dictionary(query, keys, values, sharpness):
    return values.index_select(0, (query @ keys.mT).max(dim=1).indices)


def blunt(query, keys, values, sharpness):
    return F.softmax(query @ keys.mT, dim=1) @ values


def outside(query, keys, values, sharpness):
    return F.softmax(query @ keys.mT, dim=1) @ values * sharpness


def over_queries(query, keys, values, sharpness):
    return F.softmax(query @ keys.mT * sharpness, dim=0) @ values


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("9.1", no_state, "the state is never used"),
        ("9.1", input_before, "the previous input"),
        ("9.1", linear, "tanh is missing"),
        ("9.1", backwards, "from the last token to the first"),
        ("9.2", centred, "padded on both sides"),
        ("9.2", looks_ahead, "padded at the end"),
        ("9.2", flipped, "the wrong way round"),
        ("9.2", shorter, "nothing is padded"),
        ("9.3", whole_kernel, "reaches back K - 1"),
        ("9.3", rounded_down, "rounded down"),
        ("9.3", dilated, "only with dilation"),
        ("9.3", always_one, "that is attention"),
        ("9.4", dictionary, "this is the dictionary"),
        ("9.4", blunt, "sharpness is not used"),
        ("9.4", outside, "multiplies the weights"),
        ("9.4", over_queries, "over the queries"),
    ],
)
def test_wrong_answer_gets_its_own_message(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_solutions_are_those_of_torch_and_core():
    x = torch.randn(2, 6, 4)
    rnn = nn.RNN(4, 4, bias=False, batch_first=True)
    found = solutions.recurrent(x, rnn.weight_ih_l0, rnn.weight_hh_l0)
    torch.testing.assert_close(found, rnn(x)[0])
    kernel = torch.randn(3, 4, 5)
    torch.testing.assert_close(solutions.causal_convolution(x, kernel), convolved(x, kernel, 2, 0))
    q, k, v = torch.randn(3, 6, 4)
    torch.testing.assert_close(
        solutions.look_up(q, k, v, 0.5),
        explicit(*(each[None, None] for each in (q, k, v)), Mask(), None, 0.0)[0, 0],
    )
