"""Beam states: cached steps equal the uncached model after select, copy and widen."""

import pytest
import torch

from clearformer.builder import build
from clearformer.inference.beam_cache import TreeBeams
from clearformer.inference.beam_state import INITIAL_CAPACITY, TranslationBeams
from clearformer.inference.modes import inference_mode


@pytest.fixture
def original(small, scrambled):
    config = small("original", length=80)
    return scrambled(build(config)).eval(), config


def assert_near(given, expected):
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)


START = 1
SOURCE = torch.tensor([[3, 4, 5, 6], [7, 8, 2, 2], [9, 2, 2, 2]])
ATTENTION_MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()


@pytest.mark.parametrize("steps", [3, INITIAL_CAPACITY + 5])
def test_cached_steps_equal_uncached(original, steps):
    """Also where the cache has to grow."""
    model, config = original
    tokens = torch.randint(config.vocabulary, (3, steps))
    with inference_mode(model):
        growing = TranslationBeams(model, config, START, SOURCE, ATTENTION_MASK)
        found = [growing.first(), *(growing.step(token) for token in tokens.T)]
        start = torch.full((3, 1), START)
        expected = model(SOURCE, torch.cat((start, tokens), dim=1), ATTENTION_MASK)
    assert_near(torch.stack(found, dim=1), expected)


def test_widened_beams_have_separate_caches(original):
    model, config = original
    with inference_mode(model):
        growing = TranslationBeams(model, config, START, SOURCE, ATTENTION_MASK)
        growing.first()
        growing.widen(2)
        first = torch.tensor([3, 4, 5, 6, 7, 8])
        growing.step(first)
        growing.copy(torch.tensor([0, 5]), torch.tensor([1, 4]))  # 1 continues as 0, 4 as 5
        growing.select(torch.tensor([2, 0]))
        second = torch.tensor([9, 10, 11, 12])
        given = growing.step(second)
        # Rows are now sentence 2 (both versions were 8) and sentence 0 (both were 3).
        targets = torch.tensor([[1, 8, 9], [1, 8, 10], [1, 3, 11], [1, 3, 12]])
        rows = torch.tensor([2, 2, 0, 0])
        expected = model(SOURCE[rows], targets, ATTENTION_MASK[rows])[:, -1]
    assert_near(given, expected)


def test_left_padded_prompts_match_single_prompts(small, scrambled, prompt_rows):
    config = small("modern", length=40)
    model = scrambled(build(config)).eval()
    prompt = torch.randint(config.vocabulary, (2, 5))
    attention_mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 1, 1]]).bool()
    with inference_mode(model):
        growing = prompt_rows(model, config, prompt, attention_mask)
        growing.first()
        growing.widen(2)
        growing.step(torch.tensor([1, 2, 3, 4]))
        growing.copy(torch.tensor([3]), torch.tensor([2]))
        given = growing.step(torch.tensor([5, 6, 7, 8]))
        for row, (start, tokens) in enumerate([(0, (1, 5)), (0, (2, 6)), (3, (4, 7)), (3, (4, 8))]):
            whole = torch.cat((prompt[row // 2, start:], torch.tensor(tokens)))
            assert_near(given[row], model(whole[None])[0, -1])


def test_inference_mode_restores_training_mode(original):
    model, _ = original
    model.train()
    with inference_mode(model):
        assert not model.training
        assert torch.is_inference_mode_enabled()
    assert model.training
    with pytest.raises(IndexError), inference_mode(model):
        [][0]
    assert model.training


def test_float64_model_gives_float64_logits(original):
    model, config = original
    model.double()
    tokens = torch.randint(config.vocabulary, (3, 4))
    with inference_mode(model):
        expected = model(SOURCE, torch.cat((torch.full((3, 1), 1), tokens), dim=1), ATTENTION_MASK)
        for kind in (TranslationBeams, TreeBeams):
            growing = kind(model, config, START, SOURCE, ATTENTION_MASK)
            found = [growing.first(), *(growing.step(token) for token in tokens.T)]
            torch.testing.assert_close(torch.stack(found, dim=1), expected, atol=1e-12, rtol=0)


def test_source_of_padding_only_stays_finite(original):
    model, config = original
    attention_mask = ATTENTION_MASK.clone()
    attention_mask[1] = False
    with inference_mode(model):
        first = [
            kind(model, config, START, SOURCE, attention_mask).first()
            for kind in (TranslationBeams, TreeBeams)
        ]
    assert first[0].isfinite().all()
    assert_near(first[1], first[0])


def test_attention_mask_argument_is_not_modified(small, prompt_rows):
    config = small("gpt2")
    attention_mask = torch.tensor([[True, True], [False, True]])
    before = attention_mask.clone()
    model = build(config)
    with inference_mode(model):
        growing = prompt_rows(model, config, torch.tensor([[1, 2], [3, 4]]), attention_mask)
        growing.first()
        growing.copy(torch.tensor([0]), torch.tensor([1]))
    assert growing.attention_mask.all()
    assert torch.equal(attention_mask, before)
