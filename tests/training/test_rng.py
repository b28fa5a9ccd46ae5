"""Every rank draws numbers of its own, and draws on where it stood."""

import random

import torch

from clearformer.distributed.process_group import SINGLE_PROCESS
from clearformer.training import rng

CPU = torch.device("cpu")


def test_ranks_and_steps_draw_different_numbers_and_the_same_again():
    def drawn(*place):
        rng.seed_rank(*place)
        return torch.rand(4)

    assert drawn(1, 2, 3).equal(drawn(1, 2, 3))
    others = [drawn(1, 2, 0), drawn(1, 0, 3), drawn(0, 2, 3)]
    assert not any(drawn(1, 2, 3).equal(each) for each in others)


def test_a_generator_goes_on_where_it_stood():
    saved = rng.states(CPU, SINGLE_PROCESS)
    expected = torch.rand(4)
    rng.restore(saved, CPU, rank=0)
    assert torch.rand(4).equal(expected)
    rng.restore({"cpu": torch.get_rng_state(), "cpu.1": saved["cpu"]}, CPU, rank=1)
    assert torch.rand(4).equal(expected)


def test_a_checkpoint_that_knows_torch_alone_leaves_the_others():
    rng.seed(1)
    states = rng.states(CPU, SINGLE_PROCESS)
    assert {"cpu", "python", "numpy"} <= states.keys()
    wanted = random.Random(9).random()
    random.seed(9)
    rng.restore({"cpu": states["cpu"]}, CPU, rank=0)
    assert random.random() == wanted


def test_one_seed_is_one_state():
    found = []
    for _ in range(2):
        rng.seed(2**40)
        found.append(rng.states(CPU, SINGLE_PROCESS))
    assert all(found[0][name].equal(found[1][name]) for name in found[0])
