"""Token masking: rates, replacements, special tokens, and dependence on (seed, step) alone."""

import numpy as np
import pytest

from clearformer.data.masking import MaskingPolicy, TokenMasker, single_tokens, whole_words
from clearformer.data.rows import IGNORE
from clearformer.text import Bytes, WordPieces

WORDS = "the cat walking talking sitting on unbelievable mats believes that nothing is walked"


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieces.train([WORDS], 64)


@pytest.fixture(scope="module")
def rows(tokenizer):
    """Padded rows of different lengths with special tokens; some texts contain [MASK]."""
    chance = np.random.Generator(np.random.PCG64(0))
    ordinary = np.arange(5, tokenizer.size)
    tokens = np.full((400, 100), tokenizer.padding, dtype=np.int64)
    attention_mask = np.zeros(tokens.shape, dtype=np.bool_)
    for row in range(len(tokens)):
        length = int(chance.integers(40, 101))
        tokens[row, :length] = chance.choice(ordinary, length)
        tokens[row, 0], tokens[row, length - 1] = tokenizer.prefix_ids[0], tokenizer.suffix_ids[0]
        tokens[row, 7] = tokenizer.mask
        attention_mask[row, :length] = True
    return tokens, attention_mask


@pytest.mark.parametrize("unit", [single_tokens, whole_words])
def test_masking_follows_published_rates(tokenizer, rows, unit):
    tokens, attention_mask = rows
    shown, targets = TokenMasker(tokenizer, MaskingPolicy(unit=unit)).corrupt(
        tokens, attention_mask, seed=3, step=5
    )
    hidden = targets != IGNORE
    candidates = attention_mask & (tokens >= 5)
    assert not hidden[~candidates].any()
    wanted = np.round(0.15 * candidates.sum(1))
    if unit is single_tokens:
        assert np.array_equal(hidden.sum(1), wanted)
    else:  # the last word may not fit, and the first may be longer than all that was wanted
        assert hidden.sum() == pytest.approx(wanted.sum(), rel=0.02)
    assert np.array_equal(targets[hidden], tokens[hidden])
    assert np.array_equal(shown[~hidden], tokens[~hidden])

    count = hidden.sum()
    masked = (shown == tokenizer.mask)[hidden].mean()
    same = (shown == tokens)[hidden].mean()
    near = 4 * np.sqrt(0.25 / count)  # four standard deviations, at the most
    assert masked == pytest.approx(0.8, abs=near)
    # One of the random tokens in V - 5 is the token itself.
    assert same == pytest.approx(0.1 + 0.1 / (tokenizer.size - 5), abs=near)
    swapped = shown[hidden & (shown != tokens) & (shown != tokenizer.mask)]
    assert (swapped >= 5).all()
    assert len(np.unique(swapped)) > 0.8 * (tokenizer.size - 5)


def test_positions_are_masked_uniformly(tokenizer, rows):
    tokens, attention_mask = (each[:1] for each in rows)
    masker = TokenMasker(tokenizer, MaskingPolicy())
    times = sum(
        (masker.corrupt(tokens, attention_mask, 0, step)[1] != IGNORE)[0] for step in range(2000)
    )
    candidates = (attention_mask & (tokens >= 5))[0]
    share = round(0.15 * candidates.sum()) / candidates.sum()
    deviation = np.sqrt(2000 * share * (1 - share))
    assert np.abs(times[candidates] - 2000 * share).max() < 5 * deviation


def test_masking_depends_only_on_seed_and_step(tokenizer, rows):
    tokens, attention_mask = rows
    masker = TokenMasker(tokenizer, MaskingPolicy())
    one, again = (
        masker.corrupt(tokens, attention_mask, 7, 9),
        TokenMasker(tokenizer, MaskingPolicy()).corrupt(tokens, attention_mask, 7, 9),
    )
    assert all(map(np.array_equal, one, again))
    for other in (
        masker.corrupt(tokens, attention_mask, 8, 9),
        masker.corrupt(tokens, attention_mask, 7, 10),
    ):
        assert ((one[1] != IGNORE) != (other[1] != IGNORE)).any(axis=1).all()


def test_masking_with_other_rates(tokenizer, rows):
    tokens, attention_mask = rows
    shown, targets = TokenMasker(
        tokenizer, MaskingPolicy(rate=0.4, mask_replace=0.0, random_replace=0.0)
    ).corrupt(tokens, attention_mask, 0, 0)
    assert np.array_equal(shown, tokens)
    candidates = attention_mask & (tokens >= 5)
    assert (targets != IGNORE).sum() == np.round(0.4 * candidates.sum(1)).sum()


def test_whole_word_masking(tokenizer):
    ids = np.concatenate((tokenizer.prefix_ids, tokenizer.encode(WORDS), tokenizer.suffix_ids))
    tokens = np.stack([ids.astype(np.int64)] * 200)
    attention_mask = np.ones(tokens.shape, dtype=np.bool_)
    continues = tokenizer.is_continuation()[ids]
    assert continues.any()
    word = np.cumsum(~continues)
    _, targets = TokenMasker(tokenizer, MaskingPolicy(unit=whole_words, rate=0.3)).corrupt(
        tokens, attention_mask, 0, 0
    )
    for row in targets != IGNORE:
        assert row.any()
        for each in np.unique(word[row]):
            assert row[word == each].all()


def test_whole_words_finds_word_starts():
    continues = np.array([False, True, False, True, True])
    assert whole_words(np.arange(5), continues).tolist() == [0, 2]
    # A mark between two places parts them; and a row may begin in the middle of a word.
    assert whole_words(np.array([0, 1, 2, 4, 5]), continues).tolist() == [0, 2, 3]
    assert whole_words(np.arange(3), np.array([True, True, False])).tolist() == [0, 2]
    assert single_tokens(np.arange(3), continues[:3]).tolist() == [0, 1, 2]


def test_short_row_masks_one_unit_and_empty_row_none(tokenizer):
    ids = np.concatenate(
        (tokenizer.prefix_ids, tokenizer.encode("unbelievable"), tokenizer.suffix_ids)
    )
    tokens = np.stack([ids, np.full(len(ids), tokenizer.suffix_ids[0])]).astype(np.int64)
    attention_mask = np.ones(tokens.shape, dtype=np.bool_)
    _, targets = TokenMasker(tokenizer, MaskingPolicy(unit=whole_words)).corrupt(
        tokens, attention_mask, 0, 0
    )
    assert (targets[0, 1:-1] != IGNORE).all()
    assert (targets[1] == IGNORE).all()
    _, targets = TokenMasker(tokenizer, MaskingPolicy()).corrupt(tokens, attention_mask, 0, 0)
    assert (targets[0] != IGNORE).sum() == 1


def test_rejects_tokenizer_without_mask_token():
    with pytest.raises(ValueError, match=r"the bytes tokenizer has no \[MASK\].* use wordpiece"):
        TokenMasker(Bytes(), MaskingPolicy())
