"""How a token is chosen: cuts, temperature, and a draw that can be drawn."""

import pytest
import torch

from clearformer.generate.choose import Sampling, choose, distribution

LOGITS = torch.tensor([0.5, 2.0, -1.0, 2.0, 0.0])


def by_id(how):
    probabilities, ids = distribution(LOGITS, how)
    table = torch.zeros(5, dtype=torch.float64)
    table[ids] = probabilities
    return table


def test_the_whole_vocabulary_counts():
    torch.testing.assert_close(by_id(Sampling()), LOGITS.double().softmax(0))


def test_temperature_divides_the_logits():
    found = by_id(Sampling(temperature=0.5))
    torch.testing.assert_close(found, (LOGITS.double() / 0.5).softmax(0))
    extreme = by_id(Sampling(temperature=1e-4))
    torch.testing.assert_close(extreme, torch.tensor([0, 0.5, 0, 0.5, 0]).double())


def test_temperature_zero_is_the_most_likely_and_ties_go_by_id():
    assert by_id(Sampling(temperature=0)).tolist() == [0, 1, 0, 0, 0]


def test_top_k_and_top_p_cut_the_tail():
    assert by_id(Sampling(top_k=3)).nonzero().flatten().tolist() == [0, 1, 3]
    share = LOGITS.double().softmax(0)
    assert by_id(Sampling(top_p=float(share[1]) - 1e-9)).nonzero().flatten().tolist() == [1]
    assert by_id(Sampling(top_p=float(share[1]) + 1e-9)).nonzero().flatten().tolist() == [1, 3]
    assert (by_id(Sampling(top_p=1.0)) > 0).all()
    assert by_id(Sampling(top_k=2, top_p=0.9)).sum() == pytest.approx(1.0)


def test_the_draw_is_the_inverse_of_the_cumulative_sum():
    probabilities, ids = distribution(LOGITS, Sampling())
    low = 0.0
    for probability, token in zip(probabilities.tolist(), ids.tolist(), strict=True):
        middle = choose(LOGITS, Sampling(), low + probability / 2)
        assert middle.id == token
        assert middle.probability == pytest.approx(probability)
        low += probability
    assert choose(LOGITS, Sampling(), 0.0).id == 1
    assert choose(LOGITS, Sampling(top_k=2), 1 - 1e-16).id == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1.0, but it must be at least 0"),
        ({"temperature": float("nan")}, "temperature is nan, but it must be at least 0"),
        ({"top_k": 0}, "top-k is 0, but at least 1 token must be kept"),
        ({"top_p": 0.0}, "top-p is 0.0, but it must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top-p is 1.5, but it must be above 0 and at most 1"),
    ],
)
def test_absurd_numbers_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**settings)
