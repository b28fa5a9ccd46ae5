"""Generators: tests/reliability/test_runs.py (F11) has them go on; here, older checkpoints."""

import random

import torch

from clearformer.train import chance


def test_a_checkpoint_that_knows_torch_alone_leaves_the_others():
    chance.seed(1)
    states = chance.capture()
    assert {"generator.cpu", "generator.python", "generator.numpy"} <= states.keys()
    wanted = random.Random(9).random()
    random.seed(9)
    chance.restore({"generator.cpu": states["generator.cpu"], "average.x": torch.ones(1)})
    assert random.random() == wanted


def test_one_seed_is_one_state():
    found = []
    for _ in range(2):
        chance.seed(2**40)
        found.append(chance.capture())
    assert all(found[0][name].equal(found[1][name]) for name in found[0])
