"""Position schemes, each against its formula."""

import math

import pytest
import torch
from torch import nn

from clearformer.core.embedding import Embedding
from clearformer.core.positions import Learned, NoPosition, RelativeXL, Rotary, Sinusoidal
from clearformer.extensions.positions import ALiBi, Grid, LinearScaling, Llama3Scaling

HEADS, HEAD_WIDTH = 2, 4
WIDTH = HEADS * HEAD_WIDTH


def heads(length, dtype=torch.float64):
    return torch.randn(2, HEADS, length, HEAD_WIDTH, dtype=dtype)


def test_learned_positions_are_table_rows():
    learned = Learned().embedding_parameters(5, WIDTH)
    places = torch.tensor([[0, 1, 2], [3, 4, 4]])
    assert torch.equal(Learned().added(places, WIDTH, learned), learned.table.weight[places])


def test_only_learned_tables_limit_length():
    assert Learned().max_length(5) == 5
    assert Grid(columns=4).max_length(9) == 12  # whole rows
    for scheme in (NoPosition(), Sinusoidal(), Rotary(), RelativeXL(), ALiBi()):
        assert scheme.max_length(5) is None


def test_sinusoidal_positions_match_formula():
    places = torch.tensor([[0, 1, 2], [7, 50, 999]])
    given = Sinusoidal().added(places, WIDTH)
    for row, place in zip(given.flatten(0, 1), places.flatten().tolist(), strict=True):
        for i in range(WIDTH // 2):
            angle = place / 10_000 ** (2 * i / WIDTH)
            assert row[2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert row[2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_sinusoidal_halves_order_is_a_permutation_of_interleaved():
    places = torch.arange(9)
    turns = Sinusoidal().added(places, WIDTH)
    halves = Sinusoidal(order="halves").added(places, WIDTH)
    assert halves.equal(torch.cat((turns[:, 0::2], turns[:, 1::2]), dim=1))


def test_sinusoidal_rejects_odd_width():
    with pytest.raises(ValueError, match=r"^sinusoidal positions need an even width, got 7$"):
        Sinusoidal().embedding_parameters(5, 7)


def test_rotary_rejects_odd_head_width():
    with pytest.raises(ValueError, match=r"^rotary positions need an even head width, got 3$"):
        Rotary().rotate(torch.randn(1, 2, 5, 3), torch.arange(5))


def test_relative_xl_rejects_odd_width():
    with pytest.raises(ValueError, match=r"^relative positions need an even width, got 15$"):
        RelativeXL().attention_parameters(15, 3, 5)


def test_no_position_is_identity():
    q, k = heads(3), heads(3)
    assert NoPosition().rotate(q, torch.arange(3)) is q
    assert NoPosition().score(q, k, None) == (q, None)
    assert NoPosition().added(torch.arange(3), WIDTH, None) is None


@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_rotary_equals_complex_rotation(base):
    x, places = heads(5), torch.tensor([0, 1, 2, 40, 300])
    frequencies = base ** (-2 * torch.arange(HEAD_WIDTH // 2) / HEAD_WIDTH).double()
    turned = torch.complex(*x.chunk(2, dim=-1)) * torch.exp(1j * places[:, None] * frequencies)
    expected = torch.cat((turned.real, turned.imag), dim=-1)
    torch.testing.assert_close(Rotary(base=base).rotate(x, places), expected, atol=1e-5, rtol=1e-5)


def test_rotary_scores_depend_only_on_distance():
    rotary, q, k = Rotary(), heads(6), heads(6)

    def scores(shift):
        places = torch.arange(6) + shift
        return rotary.rotate(q, places) @ rotary.rotate(k, places).mT

    torch.testing.assert_close(scores(shift=9), scores(shift=0), atol=1e-5, rtol=1e-5)
    # And on the distance: turning the keys only is another matter.
    assert not torch.allclose(rotary.rotate(q, torch.arange(6)) @ k.mT, scores(0), atol=1e-2)
    assert rotary.score(q, k, None) == (q, None)


def test_rotary_preserves_norm():
    x = heads(6)
    turned = Rotary().rotate(x, torch.arange(100, 106))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), atol=1e-6, rtol=1e-6)


def test_rotary_distinguishes_large_positions_in_half_precision():
    """bfloat16 cannot tell 4096 from 4097; the angles are therefore computed in float64."""
    x, places = torch.ones(1, 1, 2, 4), torch.tensor([4096, 4097])
    rounded = Rotary().rotate(x.bfloat16(), places)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), Rotary().rotate(x, places), atol=0.02, rtol=0.02)


@pytest.fixture
def relative():
    learned = RelativeXL().attention_parameters(WIDTH, HEADS, HEAD_WIDTH).double()
    with torch.no_grad():
        learned.content.normal_()
        learned.distance.normal_()
    return learned


SHAPES = [(5, 5), (2, 5), (3, 4), (2, 2), (1, 5), (1, 2), (1, 1)]


@pytest.mark.parametrize(("queries", "keys"), SHAPES)
def test_relative_xl_scores_equal_four_terms(relative, queries, keys):
    """Eq. 20 for all pairs, also those of a query and a later key (negative distances)."""
    q, k = heads(queries), heads(keys)
    moved, bias = RelativeXL().score(q, k, relative)
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


def test_rotary_pair_orders_are_equivalent_up_to_permutation():
    """Neighbours, reordered to halves, give the result of halves."""
    x, positions = torch.randn(2, 3, 5, 8), torch.arange(4, 9)
    order = torch.cat((torch.arange(0, 8, 2), torch.arange(1, 8, 2)))
    neighbours = Rotary(base=100.0, pairs="neighbours").rotate(x, positions)
    halves = Rotary(base=100.0)
    torch.testing.assert_close(neighbours[..., order], halves.rotate(x[..., order], positions))
    assert not neighbours.allclose(halves.rotate(x, positions))
    # By hand: the first pair rotates by one radian per position.
    one = Rotary(pairs="neighbours").rotate(
        torch.tensor([[[[1.0, 0.0, 0.0, 0.0]]]]), torch.tensor([1])
    )
    torch.testing.assert_close(one[0, 0, 0, :2], torch.tensor([math.cos(1), math.sin(1)]))


# --- far positions and small dtypes --------------------------------------------------------

FAR = [0, 1, 257, 4_097, 16_385, 131_071, 1_000_003]
LLAMA = {"factor": 8.0, "low": 1.0, "high": 4.0, "length": 8192}


def llama(frequency):
    """The rule of Llama 3.1's released code, for one frequency."""
    wavelength = 2 * math.pi / frequency
    if wavelength < LLAMA["length"] / LLAMA["high"]:
        return frequency
    if wavelength > LLAMA["length"] / LLAMA["low"]:
        return frequency / LLAMA["factor"]
    smooth = LLAMA["length"] / wavelength - LLAMA["low"]
    smooth /= LLAMA["high"] - LLAMA["low"]
    return (1 - smooth) * frequency / LLAMA["factor"] + smooth * frequency


SCALINGS = {
    "none": (None, lambda frequency: frequency),
    "linear": (LinearScaling(factor=4.0), lambda frequency: frequency / 4),
    "llama": (Llama3Scaling(**LLAMA), llama),
}
PAIRS = {
    "halves": [(d, d + WIDTH // 2) for d in range(WIDTH // 2)],
    "neighbours": [(2 * d, 2 * d + 1) for d in range(WIDTH // 2)],
}


def rotated(x, place, rule, pairs, base=10_000.0):
    """Eq. 19 for one vector, number by number."""
    y = [0.0] * WIDTH
    for d, (first, second) in enumerate(pairs):
        angle = place * rule(base ** (-2 * d / WIDTH))
        y[first] = x[first] * math.cos(angle) - x[second] * math.sin(angle)
        y[second] = x[second] * math.cos(angle) + x[first] * math.sin(angle)
    return y


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("pairs", PAIRS)
def test_rotary_is_accurate_at_large_positions(pairs, scaling, dtype):
    scheme, rule = SCALINGS[scaling]
    x = torch.randn(2, 3, len(FAR), WIDTH, dtype=dtype)
    given = Rotary(pairs=pairs, scaling=scheme).rotate(x, torch.tensor(FAR))
    assert given.dtype == dtype
    expected = torch.tensor(
        [
            [[rotated(v, place, rule, PAIRS[pairs]) for v, place in zip(rows, FAR, strict=True)]
             for rows in heads]
            for heads in x.tolist()
        ],
        dtype=torch.float64,
    )  # fmt: skip
    # What a product of two numbers of this type is rounded by; an angle's own error would grow
    # with the position.
    near = {torch.float64: 1e-9, torch.float32: 1e-6, torch.bfloat16: 0.05}[dtype]
    torch.testing.assert_close(given.double(), expected, atol=near, rtol=0)


def test_rotary_accepts_positions_per_sequence():
    """Also where there are as many sequences as heads, or as tokens."""
    for batch, heads, tokens in [(3, 3, 5), (3, 2, 3), (2, 2, 2), (1, 4, 5)]:
        x = torch.randn(batch, heads, tokens, WIDTH, dtype=torch.float64)
        places = torch.randint(1000, (batch, tokens))
        for rotary in (Rotary(), Rotary(pairs="neighbours")):
            expected = [rotary.rotate(x[b : b + 1], places[b])[0] for b in range(batch)]
            torch.testing.assert_close(
                rotary.rotate(x, places), torch.stack(expected), rtol=0, atol=0
            )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sinusoidal_is_accurate_at_large_positions(dtype):
    table = nn.Embedding(3, WIDTH).to(dtype)
    embedding = Embedding(table, 1, position=Sinusoidal()).to(dtype)
    for place in FAR:
        given = embedding(torch.tensor([[1]]), start=place)[0, 0]
        assert given.dtype == dtype
        angles = [place / 10_000 ** (2 * d / WIDTH) for d in range(WIDTH // 2)]
        waves = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
        expected = table.weight[1].double() + torch.tensor(waves, dtype=torch.float64)
        near = 1e-9 if dtype == torch.float64 else 3e-7
        torch.testing.assert_close(given.double(), expected, atol=near, rtol=0)
