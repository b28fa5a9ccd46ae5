"""Stacks of blocks: which inputs influence which outputs, and equivalence of recomputation."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer.core.attention import Attention
from clearformer.core.block import Block, DecoderBlock, FeedForward, direct, post_norm, pre_norm
from clearformer.core.cache import NO_CACHE, HiddenMemory
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Fixed, Full, Local, Strided
from clearformer.core.positions import NoPosition, RelativeXL
from clearformer.core.stack import DecoderStack, Stack
from clearformer.explore.reach import reach
from clearformer.extensions.patterns import Graph
from clearformer.training.recompute import recompute

WIDTH, HEADS, LENGTH = 8, 2, 8

PATTERNS = {
    "full": (Full(),),
    "causal": (Causal(),),
    "local": (Local(2),),
    "strided": (Strided(3),),
    "fixed": (Fixed(3, 1),),
    "graph": (Graph(((0, 3), (3, 5), (5, 1), (6, 6)), LENGTH),),
    "no one": (Graph((), LENGTH),),
    "causal and local": (Causal() & Local(2),),
    "causal and strided": (Causal() & Strided(3),),
    "causal and fixed": (Causal() & Fixed(3, 1),),
    "either": (Causal() & (Local(2) | Strided(4)),),
    "local and strided in turn": (Causal() & Local(2), Causal() & Strided(3)),
    "backwards in between": (Causal() & Local(2), Graph(((0, 7),), LENGTH)),
}


def block(residual=post_norm, dropout=0.0, position=NoPosition()):
    return Block(
        Attention(WIDTH, HEADS, position=position, dropout=dropout),
        FeedForward(WIDTH, 2 * WIDTH, F.gelu, dropout=dropout),
        (nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)),
        residual,
        dropout,
    )


@pytest.mark.parametrize("residual", [post_norm, pre_norm])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("patterns", PATTERNS)
def test_jacobian_is_nonzero_exactly_for_allowed_inputs(patterns, layers, residual, scrambled):
    """The Jacobian of a whole stack, zero for zero: no future leaks, and nothing is lost."""
    blocks = [block(residual) for _ in range(layers)]
    stack = scrambled(Stack(blocks, PATTERNS[patterns]).double())
    x = torch.randn(1, LENGTH, WIDTH, dtype=torch.float64)
    # One output number of each place is enough: it hears of every number its place hears of.
    jacobian = torch.autograd.functional.jacobian(lambda x: stack(x)[0, :, 0], x)  # (T, 1, T, E)
    influence = jacobian[:, 0].abs().sum(dim=-1) > 0
    per_layer = [stack.pattern(layer) for layer in range(layers)]
    assert torch.equal(influence, reach(per_layer, LENGTH))


def test_patterns_and_runs_cycle_over_layers(scrambled):
    ran = []

    def noted(name):
        def run(block, *arguments):
            ran.append(name)
            return block(*arguments)

        return run

    patterns = (Causal(), Local(2), Full())
    blocks = [block() for _ in range(5)]
    stack = scrambled(Stack(blocks, patterns, nn.LayerNorm(WIDTH), (noted("a"), noted("b"))))
    x = torch.randn(2, LENGTH, WIDTH)
    attention_mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [5]])
    expected = x
    for layer, pattern in enumerate((Causal(), Local(2), Full(), Causal(), Local(2))):
        expected = blocks[layer](expected, Mask(pattern, attention_mask))
    torch.testing.assert_close(stack(x, attention_mask), stack.norm(expected))
    assert ran == ["a", "b", "a", "b", "a"]


def test_decoder_stack_passes_each_layer_its_own_source(scrambled):
    blocks = [
        DecoderBlock(
            Attention(WIDTH, HEADS),
            Attention(WIDTH, HEADS),
            FeedForward(WIDTH, WIDTH),
            tuple(nn.LayerNorm(WIDTH) for _ in range(3)),
        )
        for _ in range(2)
    ]
    stack = scrambled(DecoderStack(blocks, (Causal(),), nn.LayerNorm(WIDTH)))
    x, context = torch.randn(2, 4, WIDTH), torch.randn(2, 6, WIDTH)
    source_attention_mask = torch.arange(6) < torch.tensor([[6], [3]])
    attention_mask = torch.arange(4) < torch.tensor([[2], [4]])
    sources = [layer.cross_attention.freeze(context) for layer in blocks]
    expected = x
    for layer, source in zip(blocks, sources, strict=True):
        masks = Mask(Causal(), attention_mask), Mask(Full(), source_attention_mask)
        expected = layer(expected, masks[0], NO_CACHE, masks[1], source)
    torch.testing.assert_close(
        stack(x, sources, source_attention_mask, attention_mask), stack.norm(expected)
    )


@pytest.mark.parametrize("count", [0, 1, 3])
def test_rejects_wrong_number_of_caches(count):
    message = f"got {count} caches for 2 layers: there must be one for each"
    x, caches = torch.randn(1, 3, WIDTH), [NO_CACHE] * count
    for stack in (Stack([block(), block()]), DecoderStack([block(), block()])):
        arguments = (x,) if type(stack) is Stack else (x, [NO_CACHE, NO_CACHE])
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            stack(*arguments, caches=caches)


class EagerMemory(HiddenMemory):
    """A wrong implementation: it commits while it is read."""

    def sources(self, x):
        found = super().sources(x)
        self.advance()
        return found


def gradients_of_segments(stack, x, memory, run):
    """Three segments, a memory between them, one backward pass for each: all gradients."""
    stack.zero_grad(set_to_none=True)
    stack.runs = (run,)
    torch.manual_seed(1)
    caches = [memory(capacity=3) for _ in stack.blocks]
    segments = []
    for segment in x.split(3, dim=1):
        segment = segment.clone().requires_grad_()
        # The first segment fills the memory: after it a second reading has the same shapes, and
        # nothing but the numbers can tell.
        with torch.set_grad_enabled(bool(caches[0].length)):
            y = stack(segment, caches=caches)
        if y.requires_grad:
            y.square().sum().backward()
            segments.append(segment.grad)
        for cache in caches:
            cache.advance()
    return [*segments, *(parameter.grad for parameter in stack.parameters())]


@pytest.fixture
def recurrent(scrambled):
    blocks = [block(dropout=0.2, position=RelativeXL()) for _ in range(2)]
    return scrambled(Stack(blocks, (Causal(),))).train()


def test_recomputation_does_not_change_gradients(recurrent):
    """Bit for bit, with dropout everywhere and a memory advanced after each backward pass."""
    x = torch.randn(2, 9, WIDTH)
    kept = gradients_of_segments(recurrent, x, HiddenMemory, direct)
    again = gradients_of_segments(recurrent, x, HiddenMemory, recompute)
    assert all(torch.equal(one, other) for one, other in zip(kept, again, strict=True))
    assert all(gradient.any() for gradient in kept)


def test_recomputation_detects_memory_that_commits_on_read(recurrent):
    x = torch.randn(2, 9, WIDTH)
    kept = gradients_of_segments(recurrent, x, EagerMemory, direct)
    again = gradients_of_segments(recurrent, x, EagerMemory, recompute)
    assert not all(torch.allclose(one, other) for one, other in zip(kept, again, strict=True))


def test_recomputation_runs_block_twice(recurrent):
    calls = []
    for layer in recurrent.blocks:
        layer.register_forward_pre_hook(lambda *_: calls.append(1))
    recurrent.runs = (direct, recompute)
    recurrent(torch.randn(1, 3, WIDTH)).sum().backward()
    assert len(calls) == 3


def test_batch_structure_is_combined_with_layer_pattern(small, scrambled):
    """A layer's pattern and the batch's graphs: an output sees what both allow."""
    from clearformer.builder import build
    from clearformer.extensions.patterns import Each

    config = small("classifier", layers=1)
    model = scrambled(build(config)).eval()
    tokens = torch.randint(config.vocabulary, (2, 5))
    graphs = (Graph(((0, 0), (1, 0)), 5) | Local(1), Full())
    hidden = model.hidden(tokens, structure=Each(graphs))
    for row, graph in enumerate(graphs):
        alone = model.hidden(tokens[row : row + 1], structure=graph)
        torch.testing.assert_close(hidden[row], alone[0])
    changed = tokens.clone()
    changed[:, 3] = (tokens[:, 3] + 1) % config.vocabulary
    felt = (model.hidden(changed, structure=Each(graphs)) - hidden).abs().amax(dim=-1) > 0
    assert felt.tolist() == [[False, False, False, True, False], [True] * 5]
