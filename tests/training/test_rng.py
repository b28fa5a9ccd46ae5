"""Random state: separate per rank, and restored exactly."""

import random

import torch

from clearformer.distributed.process_group import SINGLE_PROCESS
from clearformer.training import rng

CPU = torch.device("cpu")


def test_seed_rank_is_deterministic_and_distinct():
    def drawn(*place):
        rng.seed_rank(*place)
        return torch.rand(4)

    assert drawn(1, 2, 3).equal(drawn(1, 2, 3))
    others = [drawn(1, 2, 0), drawn(1, 0, 3), drawn(0, 2, 3)]
    assert not any(drawn(1, 2, 3).equal(each) for each in others)


def test_restore_continues_random_state():
    saved = rng.states(CPU, SINGLE_PROCESS)
    expected = torch.rand(4)
    rng.restore(saved, CPU, rank=0)
    assert torch.rand(4).equal(expected)
    rng.restore({"cpu": torch.get_rng_state(), "cpu.1": saved["cpu"]}, CPU, rank=1)
    assert torch.rand(4).equal(expected)


def test_restore_of_torch_state_keeps_other_generators():
    rng.seed(1)
    states = rng.states(CPU, SINGLE_PROCESS)
    assert {"cpu", "python", "numpy"} <= states.keys()
    wanted = random.Random(9).random()
    random.seed(9)
    rng.restore({"cpu": states["cpu"]}, CPU, rank=0)
    assert random.random() == wanted


def test_same_seed_gives_same_state():
    found = []
    for _ in range(2):
        rng.seed(2**40)
        found.append(rng.states(CPU, SINGLE_PROCESS))
    assert all(found[0][name].equal(found[1][name]) for name in found[0])
