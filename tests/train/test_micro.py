"""A batch of any kind in parts: nothing lost, every objective counted."""

import torch

from clearformer.core.heads import IGNORE
from clearformer.core.model import Batch, PairBatch
from clearformer.train import micro

CPU = torch.device("cpu")


def test_parts_together_are_the_batch():
    tokens = torch.arange(14).view(7, 2)
    parts = micro.cut(Batch(tokens, tokens + 1), 3, CPU)
    assert [len(part.tokens) for part in parts] == [3, 2, 2]
    assert torch.equal(torch.cat([part.tokens for part in parts]), tokens)
    assert torch.equal(torch.cat([part.targets for part in parts]), tokens + 1)
    assert all(part.keep is None for part in parts)


def test_fewer_rows_than_parts_give_no_empty_part():
    assert len(micro.cut(Batch(torch.zeros(2, 3), torch.zeros(2, 3)), 5, CPU)) == 2


def test_two_objectives_are_cut_and_counted_each():
    tokens, masked = torch.zeros(4, 3, dtype=torch.long), torch.full((4, 3), IGNORE)
    masked[0, 1] = masked[3, 2] = 7
    batch = Batch(tokens, (masked, torch.tensor([0, 1, 1, 0])))
    assert micro.counts(batch).tolist() == [2, 4]
    first, second = micro.cut(batch, 2, CPU)
    assert first.targets[0].shape == (2, 3)
    assert second.targets[1].tolist() == [1, 0]


def test_a_pair_batch_is_a_batch():
    source, target = torch.ones(4, 5), torch.ones(4, 3)
    batch = PairBatch(source, target, torch.full((4, 3), 2), source_keep=source.bool())
    assert micro.counts(batch).tolist() == [12]
    assert micro.cut(batch, 2, CPU)[1].source_keep.shape == (2, 5)
