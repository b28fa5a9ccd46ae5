"""Where a token stands: each scheme against its formula, written out."""

import itertools
import math
import re

import pytest
import torch

from clearformer.core.positions import (
    ALiBi,
    Grid,
    Learned,
    Position,
    RelativeBehind,
    RelativeXL,
    Rotary,
    Sinusoidal,
    alibi_slopes,
    in_halves,
)

HEADS, HEAD_WIDTH = 2, 4
WIDTH = HEADS * HEAD_WIDTH


def heads(length, dtype=torch.float64):
    return torch.randn(2, HEADS, length, HEAD_WIDTH, dtype=dtype)


def test_learned_positions_are_rows_of_a_table():
    learned = Learned(5, WIDTH)
    places = torch.tensor([[0, 1, 2], [3, 4, 4]])
    assert torch.equal(learned(places, end=5), learned.table.weight[places])


def test_a_sequence_longer_than_the_learned_positions_is_refused():
    message = (
        "the sequence has 7 tokens, but the learned positions end at 5: "
        "shorten it, or build the model with length=7"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Learned(5, WIDTH)(torch.arange(7), end=7)


def test_a_grid_adds_a_row_and_a_column():
    grid = Grid(rows=3, columns=4, width=8)
    given = grid(torch.arange(12), 12).view(3, 4, 8)
    for row, column in itertools.product(range(3), range(4)):
        expected = grid.row.weight[row] + grid.column.weight[column]
        torch.testing.assert_close(given[row, column], expected)
    message = (
        "the sequence has 13 tokens, but the grid has 3 rows of 4: shorten it, or build the model "
        "with length=13"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        grid(torch.arange(13), 13)


def test_sinusoidal_positions_are_the_formula():
    places = torch.tensor([[0, 1, 2], [7, 50, 999]])
    given = Sinusoidal(WIDTH)(places, end=1000)
    for row, place in zip(given.flatten(0, 1), places.flatten().tolist(), strict=True):
        for i in range(WIDTH // 2):
            angle = place / 10_000 ** (2 * i / WIDTH)
            assert row[2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert row[2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_sinusoidal_positions_in_halves_are_the_same_numbers_in_another_order():
    places = torch.arange(9)
    turns = Sinusoidal(WIDTH)(places, end=9)
    halves = Sinusoidal(WIDTH, in_halves)(places, end=9)
    assert halves.equal(torch.cat((turns[:, 0::2], turns[:, 1::2]), dim=1))


def test_sinusoidal_positions_need_an_even_width():
    with pytest.raises(ValueError, match=r"^sinusoidal positions need an even width, got 7$"):
        Sinusoidal(7)


def test_rotary_positions_need_an_even_head_width():
    with pytest.raises(ValueError, match=r"^rotary positions need an even head width, got 3$"):
        Rotary().turn(torch.randn(1, 2, 5, 3), torch.arange(5))


def test_relative_positions_need_an_even_width():
    with pytest.raises(ValueError, match=r"^relative positions need an even width, got 15$"):
        RelativeXL(15, 3)


def test_no_position_changes_nothing():
    q, k = heads(3), heads(3)
    assert Position().turn(q, torch.arange(3)) is q
    assert Position().score(q, k) == (q, None)


@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_rotary_is_a_rotation_of_complex_numbers(base):
    x, places = heads(5), torch.tensor([0, 1, 2, 40, 300])
    frequencies = base ** (-2 * torch.arange(HEAD_WIDTH // 2) / HEAD_WIDTH).double()
    turned = torch.complex(*x.chunk(2, dim=-1)) * torch.exp(1j * places[:, None] * frequencies)
    expected = torch.cat((turned.real, turned.imag), dim=-1)
    torch.testing.assert_close(Rotary(base).turn(x, places), expected, atol=1e-5, rtol=1e-5)


def test_rotary_scores_depend_on_the_distance_alone():
    rotary, q, k = Rotary(), heads(6), heads(6)

    def scores(shift):
        places = torch.arange(6) + shift
        return rotary.turn(q, places) @ rotary.turn(k, places).mT

    torch.testing.assert_close(scores(shift=9), scores(shift=0), atol=1e-5, rtol=1e-5)
    # And on the distance: turning the keys only is another matter.
    assert not torch.allclose(rotary.turn(q, torch.arange(6)) @ k.mT, scores(0), atol=1e-2)
    assert rotary.score(q, k) == (q, None)


def test_rotary_keeps_lengths():
    x = heads(6)
    turned = Rotary().turn(x, torch.arange(100, 106))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), atol=1e-6, rtol=1e-6)


def test_positions_stay_apart_in_half_precision():
    """bfloat16 cannot tell 4096 from 4097; the angles are therefore computed in float64."""
    x, places = torch.ones(1, 1, 2, 4), torch.tensor([4096, 4097])
    rounded = Rotary().turn(x.bfloat16(), places)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), Rotary().turn(x, places), atol=0.02, rtol=0.02)


@pytest.fixture
def relative():
    position = RelativeXL(WIDTH, HEADS).double()
    with torch.no_grad():
        position.content.normal_()
        position.distance.normal_()
    return position


SHAPES = [(5, 5), (2, 5), (3, 4), (2, 2), (1, 5), (1, 2), (1, 1)]


@pytest.mark.parametrize(("queries", "keys"), SHAPES)
def test_distances_behind_are_enough_where_nobody_looks_ahead(relative, queries, keys):
    behind = RelativeBehind(WIDTH, HEADS).double()
    behind.load_state_dict(relative.state_dict())
    q, k = heads(queries), heads(keys)
    seen = torch.ones(queries, keys).tril(keys - queries).bool()
    (moved, bias), (same, less) = relative.score(q, k), behind.score(q, k)
    assert torch.equal(moved, same)
    assert less.shape == bias.shape
    torch.testing.assert_close(less[..., seen], bias[..., seen])
    assert len(behind.distances(queries, keys, q)[0]) == keys + 1


@pytest.mark.parametrize(("queries", "keys"), SHAPES)
def test_relative_scores_are_the_four_terms(relative, queries, keys):
    """Eq. 20 for all pairs, also those of a query and a later key (negative distances)."""
    q, k = heads(queries), heads(keys)
    moved, bias = relative.score(q, k)
    assert bias.shape == (2, HEADS, queries, keys)
    given = moved @ k.mT / math.sqrt(HEAD_WIDTH) + bias
    frequencies = [10_000 ** (-2 * i / WIDTH) for i in range(WIDTH // 2)]
    for i in range(queries):
        for j in range(keys):
            distance = keys - queries + i - j  # the queries are the last of the keys' places
            wave = torch.tensor(
                [math.sin(distance * f) for f in frequencies]
                + [math.cos(distance * f) for f in frequencies],
                dtype=torch.float64,
            )
            for head in range(HEADS):
                rows = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
                r = relative.project.weight[rows] @ wave
                u, v = relative.content[head], relative.distance[head]
                for b in range(2):
                    q_i, k_j = q[b, head, i], k[b, head, j]
                    score = q_i @ k_j + q_i @ r + u @ k_j + v @ r
                    torch.testing.assert_close(
                        given[b, head, i, j], score / math.sqrt(HEAD_WIDTH), atol=1e-14, rtol=0
                    )


def test_alibi_slopes_are_the_published_ones():
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
    same, bias = ALiBi(8).score(q, k)
    assert same is q
    expected = [
        [
            [-(2.0 ** -(head + 1)) * abs(keys - queries + i - j) for j in range(keys)]
            for i in range(queries)
        ]
        for head in range(8)
    ]
    assert bias.tolist() == expected


def test_the_two_orders_of_rotary_pairs_are_one_scheme():
    """Neighbours, put in halves first, give what halves give."""
    from clearformer.core.positions import NeighbourRotary, Rotary

    x, positions = torch.randn(2, 3, 5, 8), torch.arange(4, 9)
    order = torch.cat((torch.arange(0, 8, 2), torch.arange(1, 8, 2)))
    neighbours = NeighbourRotary(base=100.0).turn(x, positions)
    torch.testing.assert_close(neighbours[..., order], Rotary(100.0).turn(x[..., order], positions))
    assert not neighbours.allclose(Rotary(100.0).turn(x, positions))
    # By hand: the first pair turns by one radian a place.
    one = NeighbourRotary().turn(torch.tensor([[[[1.0, 0.0, 0.0, 0.0]]]]), torch.tensor([1]))
    torch.testing.assert_close(one[0, 0, 0, :2], torch.tensor([math.cos(1), math.sin(1)]))
