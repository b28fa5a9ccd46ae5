"""Lessons without a model, with known numbers."""

import numpy as np
import pytest
import torch

from clearformer.core.positions import Rotary
from clearformer.explore import lessons
from clearformer.explore.arrays import unpack
from clearformer.http_server.errors import Problem


@pytest.mark.parametrize("d", [4, 64, 1024])
def test_score_spread_grows_with_square_root_of_width(d):
    told = lessons.scaling(d, 128, 0)
    assert told["raw"]["sd"] == pytest.approx(d**0.5, rel=0.1)
    assert told["scaled"]["sd"] == pytest.approx(1, rel=0.1)
    assert sum(told["raw"]["histogram"]["counts"]) == 128 * 128
    assert told == lessons.scaling(d, 128, 0)
    if d == 1024:
        assert told["raw"]["largest"] > 0.9  # without scaling one key takes all
        assert told["scaled"]["entropy"] > 5


def test_strided_reaches_every_position_in_two_layers():
    told = lessons.patterns("strided", 64, 8, 2, 1)
    assert (told["edges"], told["causal_edges"]) == (708, 2080)
    assert told["counts"][1] == list(range(1, 65))
    table, reached = unpack(told["mask"]), unpack(told["reach"])
    np.testing.assert_array_equal(reached[0], table)
    np.testing.assert_array_equal(reached[1], (table @ table > 0).astype(float))


@pytest.mark.parametrize("kind", lessons.PATTERNS)
def test_reach_is_boolean_matrix_power(kind):
    told = lessons.patterns(kind, 24, 4, 3, 2)
    table, power = unpack(told["mask"]), unpack(told["mask"])
    for layer in range(1, 3):
        power = (table @ power > 0).astype(float)
        np.testing.assert_array_equal(unpack(told["reach"])[layer], power)


def test_rejects_summary_larger_than_block():
    with pytest.raises(Problem, match="summary is 9, but a block has 4 positions"):
        lessons.patterns("fixed", 16, 4, 1, 9)


def test_reach_grows_by_one_memory_per_layer():
    told = lessons.memory(8, 8, 3, 5)
    assert told["reach"] == [8, 16, 24]
    timeline = unpack(told["timeline"])
    assert timeline.shape == (3, 40)
    assert timeline.sum(1).tolist() == [9, 17, 25]  # itself too
    assert lessons.memory(8, 0, 3, 5)["reach"] == [0, 0, 0]
    assert lessons.memory(4, 8, 2, 2)["reach"] == [8, 16]  # more than is drawn


def test_similarity_is_symmetric_with_a_diagonal_of_one():
    table = lessons.similarity(torch.randn(9, 5))
    assert table.equal(table.T)
    assert table.diagonal().tolist() == [1] * 9
    assert lessons.similarity(torch.zeros(2, 3)).isfinite().all()


def test_angles_match_rotary():
    x = torch.zeros(1, 1, 6, 8)
    x[..., :4] = 1
    turned = Rotary().rotate(x, torch.arange(6))[0, 0]
    torch.testing.assert_close(turned, lessons.angles(6, 8))
