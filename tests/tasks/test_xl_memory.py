"""Transformer-XL memory between steps: per micro-batch in training, per row on disk."""

import re
from dataclasses import replace

import pytest
import torch

from clearformer.builder import build
from clearformer.config import HiddenMemory
from clearformer.core.model import Batch
from clearformer.families import xl
from clearformer.tasks.xl_memory import Memories
from clearformer.training import microbatch

CPU = torch.device("cpu")


@pytest.fixture
def model():
    config = replace(
        xl("tiny"), vocabulary=20, length=6, layers=2, width=16, heads=2, hidden=32,
        cache=HiddenMemory(length=5),
    )  # fmt: skip
    return build(config).eval()


def batches(count, rows=4, length=6):
    tokens = torch.randint(20, (count, rows, length + 1))
    return [Batch(each[:, :-1], each[:, 1:]) for each in tokens]


def losses(model, memories, several):
    found = []
    for batch in several:
        parts = microbatch.split(batch, len(memories.parts), CPU)
        loss = memories.using(model.loss, parts)
        found.append(sum(loss(part)[0] for part in parts))
        memories.advance()
    return torch.cat(found)


def test_microbatches_give_same_losses(model):
    several = batches(4)
    whole = losses(model, Memories(2, 16, 5, parts=1), several)
    torch.testing.assert_close(losses(model, Memories(2, 16, 5, parts=2), several), whole)
    forgetful = Memories(2, 16, 0, parts=1)
    assert not torch.allclose(losses(model, forgetful, several)[1:], whole[1:])


def test_saved_memory_loads_into_other_microbatch_split(model):
    several = batches(5)
    whole = losses(model, Memories(2, 16, 5, parts=2), several)
    before = Memories(2, 16, 5, parts=2)
    losses(model, before, several[:3])
    saved = before.tensors()
    assert {name: tuple(each.shape) for name, each in saved.items()} == {
        "0": (4, 5, 16), "1": (4, 5, 16),
    }  # fmt: skip
    after = Memories(2, 16, 5, parts=4)
    after.load(saved, CPU)
    torch.testing.assert_close(losses(model, after, several[3:]), whole[3:])
    after.load({}, CPU)
    assert after.tensors() == {}


def test_forget_clears_memory(model):
    several = batches(2)
    memories = Memories(2, 16, 5, parts=1)
    first = losses(model, memories, several[:1])
    memories.forget()
    assert memories.tensors() == {}
    assert torch.equal(losses(model, memories, several[:1]), first)


@pytest.mark.parametrize(
    ("layers", "width", "found"), [(3, 16, "3 layers of width 16"), (2, 8, "2 layers of width 8")]
)
def test_rejects_memory_of_other_model(layers, width, found):
    saved = {f"{layer}": torch.zeros(4, 5, width) for layer in range(layers)}
    message = (
        f"the memory has {found}, but the model has 2 of width 16: it was made by another model"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Memories(2, 16, 5, parts=1).load(saved, CPU)
