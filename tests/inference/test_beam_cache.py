"""Tree-shaped beam cache: same results as a cache with one row per beam, without copying."""

import pytest
import torch

from clearformer.builder import build
from clearformer.config import NextToken, Rotary
from clearformer.inference import beam_cache
from clearformer.inference.beam_cache import TreeBeams, supports
from clearformer.inference.beam_state import TranslationBeams
from clearformer.inference.modes import inference_mode

START = 12


@pytest.fixture
def model(small, scrambled):
    def make(**changes):
        config = small("original", **{"length": 64, **changes})
        return scrambled(build(config)).eval(), config

    return make


@pytest.mark.parametrize(
    "changes",
    [
        {"residual": "post"},
        {"residual": "pre", "key_heads": 2, "head": NextToken(tied=False, cap=3.0)},
        {"residual": "pre", "activation": "swiglu"},
    ],
)
@pytest.mark.parametrize("worth", [0.0, 0.8, 1.0])
def test_tree_beams_match_row_beams(model, monkeypatch, changes, worth):
    """For beams that branch, end or are removed, with and without compaction."""
    monkeypatch.setattr(beam_cache, "COMPACT_BELOW", worth)
    ours, config = model(**changes)
    assert supports(ours)
    tokens = torch.randint(12, (4, 6))
    attention_mask = torch.arange(6) < torch.tensor([[6], [2], [5], [1]])
    versions = 3
    with inference_mode(ours):
        both = (
            TreeBeams(ours, config, START, tokens, attention_mask, versions),
            TranslationBeams(ours, config, START, tokens, attention_mask),
        )

        def same(calls):
            one, other = (call() for call in calls)
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)

        same([each.first for each in both])
        for each in both:
            each.widen(versions)
        sentences = 4
        for step in range(14):
            next_tokens = torch.randint(12, (sentences * versions,))
            same([lambda each=each, t=next_tokens: each.step(t) for each in both])
            # Versions of the same sentence take each other's place.
            base = torch.arange(sentences).repeat_interleave(versions) * versions
            rows = base + torch.randint(versions, (sentences * versions,))
            moved = (rows != torch.arange(len(rows))).nonzero().flatten()
            for each in both:
                each.copy(rows[moved], moved)
            if step in (5, 9):
                left = torch.tensor([0, 2, 3] if step == 5 else [1, 2])
                for each in both:
                    each.select(left)
                sentences = len(left)
        cached = both[0].memory[0].length
        assert cached <= 1 + 14 * versions
        assert (cached < 1 + 14 * versions) == (worth > 0)


def test_unsupported_models_use_row_beams(model):
    assert not supports(model(position=Rotary())[0])
    assert not supports(model(kernel="explicit")[0])
