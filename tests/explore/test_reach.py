"""Reach of influence, compared with counted paths and with model gradients."""

import itertools

import pytest
import torch

from clearformer.builder import build
from clearformer.config import HiddenMemory, NoPosition, RelativeXL
from clearformer.core.cache import HiddenMemory as Memory
from clearformer.core.patterns import Causal, Fixed, Full, Local, Strided
from clearformer.explore.reach import reach, reach_with_memory
from clearformer.extensions.patterns import Graph, PerHead


@pytest.mark.parametrize(
    "layers",
    [
        (Full(),),
        (Causal(), Causal()),
        (Causal() & Local(2),) * 3,
        (Causal() & Local(3), Causal() & Strided(3)),
        (Causal() & Strided(3), Causal() & Local(2), Causal() & Strided(2)),
        (Graph(((1, 0),), 8), Graph(((2, 1),), 8)),
        (Graph(((2, 1),), 8), Graph(((1, 0),), 8)),
    ],
)
def test_reach_matches_paths_of_one_edge_per_layer(layers):
    length = 8
    tables = [pattern.table(length, length).tolist() for pattern in layers]

    def reaches(output, start):
        """Walk back from the last layer to the input, staying or taking an edge in each."""
        places = {output}
        for table in reversed(tables):
            steps = itertools.product(places, range(length))
            places = places | {key for query, key in steps if table[query][key]}
        return start in places

    expected = [[reaches(i, j) for j in range(length)] for i in range(length)]
    assert reach(layers, length).tolist() == expected


def test_two_sparse_layers_reach_whole_past():
    whole_past = Causal().table(9, 9)
    local, strided = Causal() & Local(3), Causal() & Strided(3)
    assert torch.equal(reach((local, strided), 9), whole_past)
    assert not torch.equal(reach((local,), 9), whole_past)
    assert not torch.equal(reach((strided, strided), 9), whole_past)


def influence(model, tokens, caches=None):
    """Which inputs' vectors have a gradient in which outputs, by the Jacobian: (T, T)."""
    table = model.embedding.token.weight.detach()
    x = table[tokens].requires_grad_()  # (1, T, E)
    y = model.stack(x, None, caches)
    rows = [
        torch.autograd.grad(y[0, i].square().sum(), x, retain_graph=True)[0][0].abs().amax(dim=-1)
        for i in range(y.shape[1])
    ]
    return torch.stack(rows) > 0


STACKS = {
    "strided": (Causal() & Local(window=3), Causal() & Strided(stride=4)),
    "fixed": (Causal() & Fixed(stride=4, summary=1),),
    "local": (Local(window=2),),
    "heads": (Causal() & PerHead(patterns=(Local(window=2), Strided(stride=5))),),
    "long stride": (Causal() & Strided(stride=50),),
}


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("stack", STACKS)
def test_reach_matches_nonzero_jacobian(stack, layers, small, scrambled):
    length = 14
    config = small(
        "sparse", layers=layers, length=length, patterns=STACKS[stack], position=NoPosition()
    )
    model = scrambled(build(config)).double()
    tokens = torch.randint(config.vocabulary, (1, length))
    several = [config.patterns[i % len(config.patterns)] for i in range(layers)]
    assert torch.equal(reach(several, length), influence(model, tokens))


@pytest.mark.parametrize(("length", "memory"), [(4, 2), (3, 5), (4, 4), (5, 0)])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_reach_with_memory_matches_perturbation(layers, length, memory, small, scrambled):
    """The gradient stops at a memory, so influence is seen by changing one input at a time."""
    config = small("xl", layers=layers, position=RelativeXL(), cache=HiddenMemory(length=memory))
    model = scrambled(build(config)).double().eval()
    expected = reach_with_memory([Causal()] * layers, length, memory)
    keys = expected.shape[1]
    tokens = torch.randint(config.vocabulary, (1, keys))

    def last_segment(x):
        caches = [Memory(memory) for _ in range(layers)]
        for segment in x.split(length, dim=1):
            y = model(segment, caches=caches)
            for cache in caches:
                cache.advance()
        return y[0]

    with torch.no_grad():
        before = last_segment(tokens)
        for place in range(keys):
            changed = tokens.clone()
            changed[0, place] = (tokens[0, place] + 1) % config.vocabulary
            felt = (last_segment(changed) - before).abs().amax(dim=-1) > 0
            assert torch.equal(felt, expected[:, place]), place


def test_reach_grows_by_one_memory_per_layer():
    found = reach_with_memory([Causal()] * 3, length=4, memory=4)
    assert found.shape == (4, 16)
    assert found[0].tolist() == [True] * 13 + [False] * 3
    assert torch.equal(reach_with_memory([Causal()], 5, 0), reach([Causal()], 5))
