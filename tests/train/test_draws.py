"""Every rank draws numbers of its own, and draws on where it stood."""

import torch

from clearformer.train import draws
from clearformer.train.together import ALONE

CPU = torch.device("cpu")


def test_ranks_and_steps_draw_different_numbers_and_the_same_again():
    def drawn(*place):
        draws.begin(*place)
        return torch.rand(4)

    assert drawn(1, 2, 3).equal(drawn(1, 2, 3))
    others = [drawn(1, 2, 0), drawn(1, 0, 3), drawn(0, 2, 3)]
    assert not any(drawn(1, 2, 3).equal(each) for each in others)


def test_a_generator_goes_on_where_it_stood():
    saved = draws.states(CPU, ALONE)
    expected = torch.rand(4)
    draws.restore(saved, CPU, rank=0)
    assert torch.rand(4).equal(expected)
    draws.restore({"cpu": torch.get_rng_state(), "cpu.1": saved["cpu"]}, CPU, rank=1)
    assert torch.rand(4).equal(expected)
