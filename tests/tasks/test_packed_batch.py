"""Packed texts give the same values and gradients as separate texts."""

import numpy as np
import pytest
import torch

from clearformer import config as c
from clearformer.builder import build
from clearformer.core.model import Batch
from clearformer.data.packing import Example, pad_packed
from clearformer.data.rows import IGNORE
from clearformer.tasks.packed_batch import packed_batch
from clearformer.training.microbatch import count_targets, split

FAMILIES = ["generator", "gpt2", "modern", "sparse"]


def examples(vocabulary=30):
    generator = np.random.default_rng(0)
    found = []
    for length in (5, 3, 6, 1, 4):
        tokens = generator.integers(0, vocabulary, length)
        targets = generator.integers(0, vocabulary, length)
        targets[: length // 2] = IGNORE
        found.append(Example(tokens, targets))
    return found


def alone(example):
    return Batch(torch.from_numpy(example.tokens)[None], torch.from_numpy(example.targets)[None])


def model_of(small, scrambled, family, **changes):
    return scrambled(build(small(family, vocabulary=30, length=16, **changes)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", ["fused", "explicit", "blockwise"])
def test_loss_and_gradient_match_separate_texts(family, kernel, small, scrambled, gradients):
    model = model_of(small, scrambled, family, kernel=kernel).double()
    texts = examples()
    packed = packed_batch(pad_packed([texts[:3], texts[3:]], 16, 0))
    total, count = model.loss(packed)
    sums, counts = zip(*(model.loss(alone(each)) for each in texts), strict=True)
    assert torch.allclose(total, torch.stack(sums).sum(0), atol=1e-9)
    assert int(count) == sum(map(int, counts))
    wanted = torch.autograd.grad(torch.stack(sums).sum(), [*model.parameters()], allow_unused=True)
    found = torch.autograd.grad(total.sum(), [*model.parameters()], allow_unused=True)
    for one, other in zip(found, wanted, strict=True):
        assert one is None or torch.allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("position", [c.Learned(), c.Rotary(), c.ALiBi(), c.Sinusoidal()])
def test_positions_restart_at_each_text(position, small, scrambled):
    model = model_of(small, scrambled, "gpt2", position=position).double().eval()
    texts = examples()
    packed = packed_batch(pad_packed([texts], 24, 0))
    hidden = packed.hidden(model, None)[0]
    begin = 0
    for each in texts:
        apart = model.hidden(torch.from_numpy(each.tokens)[None])[0]
        assert torch.allclose(hidden[begin : begin + len(each)], apart, atol=1e-9)
        begin += len(each)


def test_no_token_depends_on_another_text(small, scrambled):
    model = model_of(small, scrambled, "modern").eval()
    texts = examples()
    packed = packed_batch(pad_packed([texts[:3]], 16, 0))
    before = packed.hidden(model, None)
    packed.tokens[0, 0] = (packed.tokens[0, 0] + 1) % 30
    after = packed.hidden(model, None)
    assert not torch.equal(before[0, :5], after[0, :5])
    assert torch.equal(before[0, 5:14], after[0, 5:14])


def test_prompts_and_padding_get_exactly_zero_gradient(small, scrambled):
    """Of the logits: what is not an answer teaches nothing."""
    model = model_of(small, scrambled, "gpt2")
    packed = packed_batch(pad_packed([examples()[:2], examples()[2:]], 16, 29))
    logits = model.head(packed.hidden(model, None))
    logits.retain_grad()
    torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), packed.targets.flatten(), ignore_index=IGNORE, reduction="sum"
    ).backward()
    learned = packed.targets != IGNORE
    assert (logits.grad[~learned] == 0).all()
    assert (logits.grad[learned] != 0).any(-1).all()
    hidden = packed.hidden(model, None)
    hidden.retain_grad()
    total, _ = model.head.loss(hidden, packed.targets)
    model.zero_grad()
    total.sum().backward()
    assert (hidden.grad[~learned] == 0).all()
    assert (hidden.grad[learned] != 0).any(-1).all()
    # No token of a text is 29: the padding's own vector learns nothing either.
    tied = model.embedding.token.weight is model.head.project.weight
    assert tied or (model.embedding.token.weight.grad[29] == 0).all()


def test_micro_batches_split_rows(small, scrambled):
    model = model_of(small, scrambled, "modern").double()
    packed = packed_batch(pad_packed([examples()[:2], examples()[2:4], examples()[4:]], 16, 0))
    parts = split(packed, 3, torch.device("cpu"))
    assert [type(part) for part in parts] == [type(packed)] * 3
    total, _ = model.loss(packed)
    apart = sum(model.loss(part)[0] for part in parts)
    assert torch.allclose(total, apart, atol=1e-9)
    assert int(count_targets(packed)) == sum(int(count_targets(part)) for part in parts)
