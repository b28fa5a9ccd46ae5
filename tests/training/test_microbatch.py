"""Splitting batches of any kind into micro-batches: nothing lost, every objective counted."""

import pytest
import torch

from clearformer.core.heads import IGNORE
from clearformer.core.model import Batch, PairBatch
from clearformer.training import microbatch

CPU = torch.device("cpu")


def test_split_parts_concatenate_to_batch():
    tokens = torch.arange(14).view(7, 2)
    parts = microbatch.split(Batch(tokens, tokens + 1), 3, CPU)
    assert [len(part.tokens) for part in parts] == [3, 2, 2]
    assert torch.equal(torch.cat([part.tokens for part in parts]), tokens)
    assert torch.equal(torch.cat([part.targets for part in parts]), tokens + 1)
    assert all(part.attention_mask is None for part in parts)


def test_split_gives_no_empty_part():
    assert len(microbatch.split(Batch(torch.zeros(2, 3), torch.zeros(2, 3)), 5, CPU)) == 2


def test_split_and_count_two_objectives():
    tokens, masked = torch.zeros(4, 3, dtype=torch.long), torch.full((4, 3), IGNORE)
    masked[0, 1] = masked[3, 2] = 7
    batch = Batch(tokens, (masked, torch.tensor([0, 1, 1, 0])))
    assert microbatch.count_targets(batch).tolist() == [2, 4]
    first, second = microbatch.split(batch, 2, CPU)
    assert first.targets[0].shape == (2, 3)
    assert second.targets[1].tolist() == [1, 0]


def test_split_pair_batch():
    source, target = torch.ones(4, 5), torch.ones(4, 3)
    batch = PairBatch(source, target, torch.full((4, 3), 2), source_attention_mask=source.bool())
    assert microbatch.count_targets(batch).tolist() == [12]
    assert microbatch.split(batch, 2, CPU)[1].source_attention_mask.shape == (2, 5)


def test_rows_of_all_ranks_form_the_batch():
    tokens = torch.arange(16).view(8, 2)
    for world in (1, 2, 4):
        parts = microbatch.micro_batches_per_rank(8, accumulate=4, world_size=world)
        cuts = [microbatch.split(Batch(tokens, tokens), parts, CPU, r, world) for r in range(world)]
        assert {len(each) for each in cuts} == {4 // world}
        assert torch.equal(torch.cat([part.tokens for cut in cuts for part in cut]), tokens)


def test_rank_without_rows_has_no_targets():
    batch = Batch(torch.ones(3, 2), (torch.ones(3, 2), torch.ones(3)))
    own = [microbatch.split(batch, 2, CPU, rank, 2) for rank in range(2)]
    assert [len(each) for each in own] == [2, 2]
    assert sum(int(microbatch.count_targets(part).sum()) for each in own for part in each) == 9
    assert microbatch.count_targets(own[1][1]).tolist() == [0, 0]
    assert own[1][1].tokens.shape == (1, 2)


def test_microbatch_size_does_not_grow_with_world_size():
    assert microbatch.micro_batches_per_rank(12, accumulate=1, world_size=3) == 1
    assert microbatch.micro_batches_per_rank(12, accumulate=4, world_size=2) == 2
    assert microbatch.micro_batches_per_rank(12, accumulate=4, world_size=3) == 2
    assert microbatch.micro_batches_per_rank(12, accumulate=4, world_size=12) == 1


def test_rejects_batch_not_divisible_by_world_size():
    sentence = (
        r"a batch of 6 cannot be shared evenly by 4 processes: use one of 1, 2, 3, 6 processes, "
        r"or a batch of 4 or 8"
    )
    with pytest.raises(ValueError, match=sentence):
        microbatch.micro_batches_per_rank(6, accumulate=1, world_size=4)
