import constriction
import numpy as np
import pytest
import torch

from clearformer.compressor.protocols import cut
from clearformer.inference.entropy_coder import (
    FAMILY,
    PRECISION,
    Decoder,
    Encoder,
    code,
    frequencies,
    interval,
)


class Scripted:
    """Returns logits from a list."""

    def __init__(self, logits):
        self.logits = iter(logits)

    def read(self, tokens):
        return next(self.logits)


def coded(tokens, streams, logits, vocabulary):
    starts, counts = cut(tokens, streams)
    encoder = Encoder(tokens, starts)
    code(Scripted(logits), counts, vocabulary, encoder)
    found = np.zeros_like(tokens)
    decoder = Decoder(encoder.finish(), found, starts)
    code(Scripted(logits), counts, vocabulary, decoder)
    return encoder, found


@pytest.mark.parametrize("streams", [1, 3, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_encode_decode_round_trip(streams, count):
    tokens = np.random.default_rng(0).integers(0, 50, count).astype(np.uint8)
    logits = [10 * torch.randn(streams, 50) for _ in range(count)]
    _, found = coded(tokens, streams, logits, 50)
    assert found.tolist() == tokens.tolist()


def test_round_trip_of_zero_probability_tokens():
    logits = torch.full((1, 4), -1e4)
    logits[0, 0] = 1e4  # the probability of the others is 0
    tokens = np.array([3, 2, 1, 0, 3], np.uint8)
    encoder, found = coded(tokens, 1, [logits] * 5, 4)
    assert found.tolist() == tokens.tolist()
    assert 3 * 24 <= encoder.bits <= 3 * 24 + 2 + 64


def test_code_length_is_close_to_entropy():
    generator = np.random.default_rng(0)
    logits = torch.randn(2000, 1, 64).double() * 2
    shares = logits.softmax(-1).numpy()[:, 0]
    tokens = np.array([0, *(generator.choice(64, p=row) for row in shares[:-1])], np.uint8)
    bits = 6 - np.log2(shares[np.arange(1999), tokens[1:]]).sum()
    encoder, _ = coded(tokens, 1, list(logits), 64)
    assert bits < encoder.bits < 1.0005 * bits + 64


def test_frequencies_follow_documented_rule():
    """No token gets 0, and constriction's 24 bits are those that its documentation states."""
    logits = torch.tensor([[0.0, -1.0, -2.0, -100.0]])
    table = frequencies(logits)
    shares = logits.softmax(-1).double().numpy()
    assert (table == np.floor(shares * 2**40) + 1).all()
    exact = logits.double()
    assert (frequencies(exact) == np.floor(exact.softmax(-1).numpy() * 2**40) + 1).all()
    assert table[0, 3] == 1
    ends = np.concatenate(([0], table[0].cumsum())) * ((2**24 - 4) / table.sum())
    widths = np.diff(np.floor(ends) + np.arange(5))
    assert widths.sum() == 2**24
    for symbol, width in enumerate(widths):
        encoder = constriction.stream.queue.RangeEncoder()
        count = 2000
        encoder.encode(np.full(count, symbol, np.int32), FAMILY, table.repeat(count, 0))
        assert encoder.num_bits() == pytest.approx(-count * np.log2(width / 2**24), abs=64)


@pytest.mark.parametrize("wrong", ["nan", "inf"])
@pytest.mark.parametrize("place", [0, 3, 7])
def test_rejects_nan_and_infinity_anywhere(wrong, place):
    logits = torch.zeros(3, 8)
    logits[1, place] = float(wrong)
    with pytest.raises(ValueError, match="NaN or infinite"):
        frequencies(logits)


def test_impossible_token_keeps_a_frequency():
    logits = torch.zeros(1, 8)
    logits[0, 0] = float("-inf")
    assert frequencies(logits)[0, 0] == 1


def test_random_input_raises_only_value_errors():
    chance = np.random.default_rng(0)
    for _ in range(50):
        tokens = np.zeros(40, np.uint8)
        starts, counts = cut(tokens, 2)
        decoder = Decoder(chance.bytes(4 * int(chance.integers(0, 8))), tokens, starts)
        logits = [3 * torch.randn(2, 9) for _ in range(40)]
        try:
            code(Scripted(logits), counts, 9, decoder)
        except ValueError as problem:
            assert "does not belong" in str(problem)  # noqa: PT017


@pytest.mark.parametrize("size", [2, 5, 300])
def test_interval_matches_coder_state(size):
    """The coder's own range shrinks to the interval that the rule gives."""
    chance = np.random.default_rng(size)
    tokens = chance.integers(0, size, 60)
    encoder = Encoder(tokens, np.array([0]))
    for place, token in enumerate(tokens):
        logits = torch.from_numpy(10 * chance.standard_normal((1, size)))
        table = frequencies(logits)
        begin, width = interval(table[0], int(token))
        words, low, span = encoder.state
        encoder(place, table)
        unit = span >> PRECISION
        expected = (low + unit * begin, unit * width)
        if encoder.state[0] == words:
            assert encoder.state[1:] == (expected[0] % 2**64, expected[1])
        else:  # a word of 32 bits was written
            assert encoder.state[2] == expected[1] << 32


def test_intervals_partition_the_range():
    table = frequencies(torch.tensor([[3.0, -2.0, 0.0, 50.0]]))[0]
    parts = [interval(table, token) for token in range(4)]
    assert parts[0][0] == 0
    assert [a + b for a, b in parts] == [*(a for a, _ in parts[1:]), 2**PRECISION]
    assert min(width for _, width in parts) >= 1
