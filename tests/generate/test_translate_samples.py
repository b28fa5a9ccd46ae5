"""Sampled translations: the model's own distribution, the same in any batch."""

import pytest
import torch

from clearformer import config as c
from clearformer.generate.beam import Beam
from clearformer.generate.sampling import Sampling
from clearformer.generate.translate import SampledTranslations, decode, sample

START, END = 300, 0  # of the `marian` fixture
DEFAULTS = c.GenerationDefaults(start_id=START, end_ids=(END,), banned_ids=(START,))


def rows(sources, lengths, seed=0):
    tokens, attention_mask = sources(lengths, seed)
    return [row[real].tolist() for row, real in zip(tokens, attention_mask, strict=True)]


def test_a_text_has_the_same_samples_alone_and_in_a_batch(marian, sources):
    _, model, config = marian(0, 2.0)
    settings = SampledTranslations(samples=3, seed=5)
    batch = rows(sources, [9, 4, 6])
    together = sample(model, config, DEFAULTS, batch, settings, 12)
    for source, several in zip(batch, together, strict=True):
        (alone,) = sample(model, config, DEFAULTS, [source], settings, 12)
        assert [each.tokens for each in alone] == [each.tokens for each in several]
    assert len({each.tokens for each in together[0]}) > 1


def test_temperature_zero_is_greedy(marian, sources):
    _, model, config = marian(1, 2.0)
    batch = rows(sources, [9, 4, 6])
    settings = SampledTranslations(sampling=Sampling(temperature=0), samples=2)
    greedy = decode(model, config, DEFAULTS, batch, Beam(width=1, length_penalty=0.0), 12)
    for several, (likeliest,) in zip(
        sample(model, config, DEFAULTS, batch, settings, 12), greedy, strict=True
    ):
        assert {each.tokens for each in several} == {likeliest.tokens}
        assert several[0].score == pytest.approx(likeliest.score, abs=1e-4)


def test_first_tokens_are_drawn_as_often_as_the_model_says(marian, sources):
    _, model, config = marian(2, 0.0)
    (source,) = rows(sources, [5])
    settings = SampledTranslations(sampling=Sampling(top_k=4), samples=400)
    (found,) = sample(model, config, DEFAULTS, [source], settings, 1)
    with torch.no_grad():
        logits = model(torch.tensor([source]), torch.tensor([[START]]))[0, -1]
    logits[START] = -torch.inf
    best, ids = logits.topk(4)
    counts = [sum(each.tokens == (int(token),) for each in found) for token in ids]
    assert sum(counts) == 400 - sum(each.tokens == () for each in found)
    shares = best.softmax(0) * 400
    for count, token, share in zip(counts, ids.tolist(), shares.tolist(), strict=True):
        if token != END:
            assert abs(count - share) < 5 * share**0.5 + 1


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="`best` is 0, but it must be at least 1"):
        SampledTranslations(samples=0)
