"""Context overflow: sliding window, stop or no limit, and where each is rejected."""

import pytest

from clearformer.config import ALiBi, Grid, NoPosition, RelativeXL, Rotary, Sinusoidal
from clearformer.generate.context import (
    NoLimit,
    SlidingWindow,
    StopAtLimit,
    context_limit,
    default_overflow,
    handle_overflow,
    remaining_tokens,
)
from clearformer.generate.sequence import GeneratedSequence, GenerationConfig


def test_default_overflow_depends_on_cache(small):
    assert default_overflow(small("gpt2")) == SlidingWindow()
    assert default_overflow(small("xl")) == NoLimit()


@pytest.mark.parametrize("position", [Rotary(), ALiBi(), RelativeXL(), Sinusoidal(), NoPosition()])
def test_no_limit_allowed_without_learned_positions(position, small):
    assert context_limit(NoLimit(), small("generator", position=position)) is None


def test_no_limit_rejected_for_learned_positions(small):
    assert (
        context_limit(SlidingWindow(), small("gpt2"))
        == context_limit(StopAtLimit(), small("gpt2"))
        == 12
    )
    with pytest.raises(ValueError, match=r"^gpt2-small has 12 learned positions, so a text cannot"):
        context_limit(NoLimit(), small("gpt2"))


def test_no_limit_rejected_for_grid_positions(small):
    config = small("generator", position=Grid(columns=4))
    with pytest.raises(
        ValueError, match=r"^generator.* has 12 learned positions, so a text cannot"
    ):
        context_limit(NoLimit(), config)


def test_sliding_window_keeps_last_part():
    row = GeneratedSequence(range(13), GenerationConfig())
    assert handle_overflow(row, SlidingWindow(0.5), limit=12) == []
    assert row.context == list(range(13))[-6:]
    handle_overflow(row, StopAtLimit(), limit=12)
    assert row.finish_reason == "context"


def test_remaining_tokens_is_bounded_by_limit_and_request():
    rows = [
        GeneratedSequence([1] * 4, GenerationConfig(max_tokens=3)),
        GeneratedSequence([1] * 9, GenerationConfig(max_tokens=3)),
    ]
    assert remaining_tokens(rows, 10) == 1
    assert remaining_tokens(rows, 20) == remaining_tokens(rows, None) == 3


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
def test_rejects_invalid_share(share):
    with pytest.raises(ValueError, match=f"^share is {share}, but it must be above 0 and below 1"):
        SlidingWindow(share)
