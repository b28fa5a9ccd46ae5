"""Sampling: processors in order, temperature, and the random draw."""

import pytest
import torch

from clearformer.generate.sampling import Sampling, next_token, process_logits, warp_logits

LOGITS = torch.tensor([0.5, 2.0, -1.0, 2.0, 0.0])


def by_id(sampling):
    return warp_logits(process_logits(LOGITS, sampling), sampling).softmax(0)


def kept(sampling):
    return (by_id(sampling) > 0).nonzero().flatten().tolist()


def test_default_sampling_uses_whole_vocabulary():
    torch.testing.assert_close(by_id(Sampling()), LOGITS.double().softmax(0))


def test_temperature_divides_the_logits():
    found = by_id(Sampling(temperature=0.5))
    torch.testing.assert_close(found, (LOGITS.double() / 0.5).softmax(0))
    extreme = by_id(Sampling(temperature=1e-300))
    torch.testing.assert_close(extreme, torch.tensor([0, 0.5, 0, 0.5, 0]).double())


def test_temperature_zero_is_argmax_with_ties_by_id():
    choice = next_token(LOGITS, Sampling(temperature=0), 0.99)
    assert (choice.id, choice.probability, choice.uniform) == (1, 1.0, 0.99)


def test_top_k_top_p_min_p_and_typical_p_compose():
    assert kept(Sampling(top_k=3)) == [0, 1, 3]
    share = LOGITS.double().softmax(0)
    assert kept(Sampling(top_p=float(share[1]) - 1e-9)) == [1]
    assert kept(Sampling(top_p=float(share[1]) + 1e-9)) == [1, 3]
    assert len(kept(Sampling(top_p=1.0))) == 5
    assert kept(Sampling(top_k=3, top_p=0.85)) == [1, 3]
    assert kept(Sampling(min_p=0.2)) == [0, 1, 3]
    assert 0 < len(kept(Sampling(typical_p=0.3))) < 5


def test_penalties_and_forced_ids_use_generated_text():
    sampling = Sampling(
        temperature=0,
        repetition_penalty=5.0,
        frequency_penalty=1.5,
        banned_ids=(3,),
        forced_ids=(2,),
    )
    assert next_token(LOGITS, sampling, 0.5).id == 2  # forced, then free
    assert next_token(LOGITS, sampling, 0.5, text=[2]).id == 1
    assert next_token(LOGITS, sampling, 0.5, prompt=[1], text=[2]).id == 0
    assert next_token(LOGITS, sampling, 0.5, text=[1, 0]).id == 4
    # The frequency counts the text alone, the repetition the prompt as well.
    assert (
        next_token(LOGITS, Sampling(temperature=0, frequency_penalty=9.0), 0.5, prompt=[1]).id == 1
    )


def test_forced_token_overrides_ban():
    assert next_token(LOGITS, Sampling(forced_ids=(2,), banned_ids=(2,)), 0.5).id == 2


def test_draw_inverts_cumulative_distribution():
    shares, ids = LOGITS.double().softmax(0).sort(descending=True, stable=True)
    low = 0.0
    for probability, token in zip(shares.tolist(), ids.tolist(), strict=True):
        middle = next_token(LOGITS, Sampling(), low + probability / 2)
        assert middle.id == token
        assert middle.probability == pytest.approx(probability)
        low += probability
    assert next_token(LOGITS, Sampling(), 0.0).id == 1
    assert next_token(LOGITS, Sampling(top_k=2), 1 - 1e-16).id == 3


def test_rejects_empty_candidates_and_nan_logits():
    with pytest.raises(ValueError, match=r"^no token is left .* every one, 5 of them by a ban$"):
        next_token(LOGITS, Sampling(banned_ids=(0, 1, 2, 3, 4)), 0.5)
    for sampling in (Sampling(temperature=0), Sampling()):
        with pytest.raises(ValueError, match=r"^the logits of the next token are NaN: the"):
            next_token(LOGITS * float("nan"), sampling, 0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1.0, but it must be at least 0"),
        ({"temperature": float("nan")}, "temperature is nan, but it must be at least 0"),
        ({"top_k": 0}, "top-k is 0, but at least 1 token must be kept"),
        ({"top_p": 0.0}, "top-p is 0.0, but it must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top-p is 1.5, but it must be above 0 and at most 1"),
        ({"typical_p": 2.0}, "typical-p is 2.0, but it must be above 0 and at most 1"),
        ({"min_p": -0.1}, "min-p is -0.1, but it must be between 0 and 1"),
        ({"repetition_penalty": 0.0}, "repetition-penalty is 0.0, but it must be above 0"),
        ({"frequency_penalty": float("inf")}, "frequency-penalty is inf, but it must be a number"),
    ],
)
def test_rejects_invalid_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**settings)


def test_logits_with_a_gradient_can_be_warped():
    logits = torch.randn(200, requires_grad=True)
    warped = warp_logits(logits, Sampling(top_k=90, top_p=0.99))
    warped[warped.isfinite()].sum().backward()
    assert logits.grad.count_nonzero() > 1


@pytest.mark.parametrize("spread", [0.0, 0.1, 4.0])
@pytest.mark.parametrize(
    "options", [{}, {"top_k": 40}, {"top_p": 0.9}, {"top_k": 90, "top_p": 0.8, "temperature": 0.7}]
)
def test_draw_matches_full_sort_of_a_large_vocabulary(options, spread):
    sampling = Sampling(**options)
    logits = (torch.randn(3000) * spread).round(decimals=1)  # with ties
    probabilities = warp_logits(logits, sampling).softmax(0)
    shares, ids = probabilities.sort(descending=True, stable=True)
    for uniform in (0.0, 0.2, 0.77, 0.999999, 1 - 1e-16):
        place = int((shares.cumsum(0) <= uniform).sum())
        place = min(place, int(shares.count_nonzero()) - 1)
        found = next_token(logits, sampling, uniform)
        assert (found.id, found.probability) == (int(ids[place]), float(shares[place]))
