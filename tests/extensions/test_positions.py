"""ALiBi and grid positions; scaled rotary angles are in tests/core/test_positions.py."""

import itertools

import pytest
import torch

from clearformer.extensions.positions import ALiBi, Grid, alibi_slopes

HEADS, HEAD_WIDTH = 2, 4
WIDTH = HEADS * HEAD_WIDTH


def heads(length, dtype=torch.float64):
    return torch.randn(2, HEADS, length, HEAD_WIDTH, dtype=dtype)


SHAPES = [(5, 5), (2, 5), (3, 4), (2, 2), (1, 5), (1, 2), (1, 1)]


def test_grid_adds_row_and_column_embedding():
    grid = Grid(columns=4).embedding_parameters(10, 8)
    given = Grid(columns=4).added(torch.arange(12), 8, grid).view(3, 4, 8)
    for row, column in itertools.product(range(3), range(4)):
        expected = grid.row.weight[row] + grid.column.weight[column]
        torch.testing.assert_close(given[row, column], expected)


def test_alibi_slopes_match_published_values():
    assert alibi_slopes(8) == tuple(2.0**-n for n in range(1, 9))  # 1/2 ... 1/256
    # The released code for 12 heads: the 8 of 8 heads, then every other one of 16 heads.
    expected = [2.0**-n for n in range(1, 9)] + [2.0**-n for n in (0.5, 1.5, 2.5, 3.5)]
    assert alibi_slopes(12) == pytest.approx(expected)
    assert alibi_slopes(1) == pytest.approx([2.0**-8])
    assert alibi_slopes(2) == pytest.approx([2.0**-4, 2.0**-8])
    assert len(alibi_slopes(7)) == 7


@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (2, 5), (1, 3)])
def test_alibi_is_minus_slope_times_distance(queries, keys):
    q, k = torch.randn(1, 8, queries, 4), torch.randn(1, 8, keys, 4)
    same, bias = ALiBi().score(q, k, None)
    assert same is q
    expected = [
        [
            [-(2.0 ** -(head + 1)) * abs(keys - queries + i - j) for j in range(keys)]
            for i in range(queries)
        ]
        for head in range(8)
    ]
    assert bias.tolist() == expected
