"""Chapter 13: wrong answers as people write them, and the solutions beside core."""

import pytest
import torch

from clearformer.core.attention import Attention
from clearformer.core.cache import HiddenMemory
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal
from clearformer.core.positions import RelativeXL
from clearformer.learn import transformer_xl as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def attended(q, k, v, seen=None):
    scores = torch.einsum("id,jd->ij", q, k) * q.shape[1] ** -0.5
    if seen is not None:
        scores = torch.where(seen, scores, torch.tensor(-1e30))
    return scores.softmax(1) @ v


def no_memory(x, memory, wq, wk, wv):
    return attended(x @ wq.T, x @ wk.T, x @ wv.T, torch.tril(torch.ones(len(x), len(x))) > 0)


def aligned_at_the_start(x, memory, wq, wk, wv):
    both = torch.cat([memory.detach(), x])
    seen = torch.arange(len(both)) <= torch.arange(len(x))[:, None]
    return attended(x @ wq.T, both @ wk.T, both @ wv.T, seen)


def unmasked(x, memory, wq, wk, wv):
    both = torch.cat([memory.detach(), x])
    return attended(x @ wq.T, both @ wk.T, both @ wv.T)


def queries_of_the_memory(x, memory, wq, wk, wv):
    both = torch.cat([memory.detach(), x])
    seen = torch.tril(torch.ones(len(both), len(both))) > 0
    return attended(both @ wq.T, both @ wk.T, both @ wv.T, seen)


def memory_behind(x, memory, wq, wk, wv):
    both = torch.cat([x, memory.detach()])
    seen = torch.arange(len(both)) <= torch.arange(len(x))[:, None] + len(memory)
    return attended(x @ wq.T, both @ wk.T, both @ wv.T, seen)


def gradient_into_the_memory(x, memory, wq, wk, wv):
    both = torch.cat([memory, x])
    seen = torch.arange(len(both)) <= torch.arange(len(x))[:, None] + len(memory)
    return attended(x @ wq.T, both @ wk.T, both @ wv.T, seen)


def nothing_shifted(by_distance, keys):
    return by_distance[..., :keys]


def the_last_columns(by_distance, keys):
    return by_distance[:, by_distance.shape[1] - keys :]


def the_other_way(by_distance, keys):
    return torch.stack([row[i : i + keys] for i, row in enumerate(by_distance)])


def reversed_keys(by_distance, keys):
    last = len(by_distance) - 1
    rows = [row[last - i : last - i + keys] for i, row in enumerate(by_distance)]
    return torch.stack(rows).flip(-1)


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("13.1", no_memory, "the memory is not used"),
        ("13.1", aligned_at_the_start, "aligned at the first key"),
        ("13.1", unmasked, "there is no mask"),
        ("13.1", queries_of_the_memory, "queries are made of the memory"),
        ("13.1", memory_behind, "the memory stands behind the segment"),
        ("13.1", gradient_into_the_memory, "a gradient reaches memory, where it must stop"),
        ("13.2", nothing_shifted, "no row is shifted"),
        ("13.2", the_last_columns, "the distances of the first query"),
        ("13.2", the_other_way, "shifted the wrong way"),
        ("13.2", reversed_keys, "in reverse order"),
    ],
)
def test_a_wrong_answer_gets_its_own_message(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_the_solutions_are_core():
    layer = Attention(8, 1, bias=False)
    x, memory = torch.randn(1, 4, 8), torch.randn(1, 3, 8)
    cache = HiddenMemory(capacity=3)
    cache.states = memory
    found = solutions.attend_with_memory(x[0], memory[0], *layer.project.weight.chunk(3))
    torch.testing.assert_close(layer.output(found), layer(x, Mask(Causal()), cache)[0])
    by_distance = torch.randn(3, 7)
    expected = RelativeXL().by_key(by_distance[None, None], 5)[0, 0]
    torch.testing.assert_close(solutions.by_key(by_distance, 5), expected)
