"""Transformer-XL against the published definition, computed with scalar loops.

The released implementations no longer run with current libraries, so the fixture is derived
from the paper: section 3.3, with memory, post-norm, ReLU, u, v and the sinusoid of distance.
"""

import math
from dataclasses import replace

import pytest
import torch

from clearformer.builder import build, caches
from clearformer.config import HiddenMemory
from clearformer.core.model import Batch

MEMORY = 5


@pytest.fixture
def config(small):
    return small("xl", cache=HiddenMemory(length=MEMORY))


@pytest.fixture
def model(config, scrambled):
    return scrambled(build(config)).double().eval()


def norm(x, layer):
    x = (x - x.mean()) / torch.sqrt(((x - x.mean()) ** 2).mean() + 1e-5)
    return x * layer.weight + layer.bias


def published(model, config, tokens, memory):
    """Logits of one segment (T,), and the hidden states that enter each layer, one by one."""
    width, heads = config.width, config.heads
    head_width = width // heads
    h = [model.embedding.token.weight[t] * math.sqrt(width) for t in tokens.tolist()]
    entered = []
    for layer, block in enumerate(model.stack.blocks):
        entered.append(torch.stack(h).detach())
        context = [*memory[layer], *h]  # [SG(m), h]
        past = len(memory[layer])
        w_q, w_k, w_v = block.attention.project.weight.split(width)
        position = block.attention.position
        new = []
        for i in range(len(h)):
            outputs = []
            for n in range(heads):
                rows = slice(n * head_width, (n + 1) * head_width)
                u, v = position.content[n], position.distance[n]
                q = w_q[rows] @ h[i]
                scores, values = [], []
                for j in range(past + i + 1):
                    distance = past + i - j
                    rates = [10_000 ** (-2 * c / width) for c in range(width // 2)]
                    r = [math.sin(distance * a) for a in rates]
                    r = torch.tensor(r + [math.cos(distance * a) for a in rates]).double()
                    k_e, k_r = w_k[rows] @ context[j], position.project.weight[rows] @ r
                    # (a) content, (b) content and distance, (c) global content, (d) distance
                    score = q @ k_e + q @ k_r + u @ k_e + v @ k_r
                    scores.append(score / math.sqrt(head_width))
                    values.append(w_v[rows] @ context[j])
                shares = torch.softmax(torch.stack(scores), dim=0)
                outputs.append(sum(s * value for s, value in zip(shares, values, strict=True)))
            attended = block.attention.output.weight @ torch.cat(outputs)
            o = norm(h[i] + attended, block.attention_norm)
            up, down = block.feed_forward.up, block.feed_forward.down
            hidden = torch.clamp(up.weight @ o + up.bias, min=0)
            new.append(norm(o + down.weight @ hidden + down.bias, block.feed_forward_norm))
        h = new
    project = model.head.project
    return torch.stack([project.weight @ x + project.bias for x in h]), entered


def segments_of(model, config, tokens, length):
    """Ours and the published one, segment by segment, each with a memory of its own."""
    ours = caches(config)
    theirs = [[] for _ in range(config.layers)]
    for segment in tokens.split(length):
        given = model(segment[None], caches=ours)[0]
        expected, entered = published(model, config, segment, theirs)
        yield given, expected
        for cache in ours:
            cache.advance()
        theirs = [[*old, *new][-MEMORY:] for old, new in zip(theirs, entered, strict=True)]


@pytest.mark.parametrize("length", [3, 4])
def test_logits_match_published_definition(model, config, length):
    tokens = torch.randint(config.vocabulary, (3 * length,))
    for given, expected in segments_of(model, config, tokens, length):
        torch.testing.assert_close(given, expected)


def test_gradients_match_published_definition(model, config):
    tokens = torch.randint(config.vocabulary, (8,))
    for given, expected in segments_of(model, config, tokens, 4):
        mixture = torch.linspace(-1, 1, given.numel()).view_as(given).double()
        parameters = list(model.parameters())
        ours = torch.autograd.grad((given * mixture).sum(), parameters)
        theirs = torch.autograd.grad((expected * mixture).sum(), parameters)
        torch.testing.assert_close(ours, theirs)


def test_memory_equals_longer_context_with_detached_prefix(model, config):
    """One layer: the segment after a memory is the end of the longer segment, but for the
    gradient, which is that of a long segment whose first part is held fixed."""
    config = replace(config, layers=1)
    model = build(config, seed=3).double()
    tokens = torch.randint(config.vocabulary, (2, 5 + 4))
    memory = caches(config)
    model(tokens[:, :5], caches=memory)
    memory[0].advance()
    after = model(tokens[:, 5:], caches=memory)
    torch.testing.assert_close(after, model(tokens)[:, 5:])

    block = model.stack.blocks[0]
    x = model.embedding(tokens)
    stopped = torch.cat((x[:, :5].detach(), x[:, 5:]), dim=1)
    from clearformer.core.masks import Mask
    from clearformer.core.patterns import Causal

    held = model.head(block(stopped, Mask(Causal()))[:, 5:])
    parameters = list(model.parameters())
    given = torch.autograd.grad(after.square().sum(), parameters)
    expected = torch.autograd.grad(held.square().sum(), parameters)
    torch.testing.assert_close(given, expected)


def test_segments_with_full_memory_give_loss_of_whole_text(model, config):
    """All at once, or in segments with a memory that holds everything: the same losses."""
    from clearformer.core.cache import HiddenMemory as Memory

    tokens = torch.randint(config.vocabulary, (1, 25))
    whole = model.loss(Batch(tokens[:, :-1], tokens[:, 1:]))[0]
    memory = [Memory(100) for _ in range(config.layers)]
    total = torch.zeros(1).double()
    for start in range(0, 24, 6):
        some = tokens[:, start : start + 7]
        total += model.loss(Batch(some[:, :-1], some[:, 1:]), memory)[0]
        for cache in memory:
            cache.advance()
    torch.testing.assert_close(total, whole)
