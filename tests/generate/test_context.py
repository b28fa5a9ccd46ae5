"""What happens past the context: stated by a value, refused where it has no meaning."""

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


def test_the_usual_rule_follows_the_past(small):
    assert default_overflow(small("gpt2")) == SlidingWindow()
    assert default_overflow(small("xl")) == NoLimit()


@pytest.mark.parametrize("position", [Rotary(), ALiBi(), RelativeXL(), Sinusoidal(), NoPosition()])
def test_positions_without_an_end_may_continue(position, small):
    assert context_limit(NoLimit(), small("generator", position=position)) is None


def test_learned_positions_end(small):
    assert (
        context_limit(SlidingWindow(), small("gpt2"))
        == context_limit(StopAtLimit(), small("gpt2"))
        == 12
    )
    with pytest.raises(ValueError, match=r"^gpt2-small has 12 learned positions, so a text cannot"):
        context_limit(NoLimit(), small("gpt2"))


def test_a_grid_of_positions_ends(small):
    config = small("generator", position=Grid(columns=4))
    with pytest.raises(
        ValueError, match=r"^generator.* has 12 learned positions, so a text cannot"
    ):
        context_limit(NoLimit(), config)


def test_sliding_keeps_the_last_part():
    row = GeneratedSequence(range(13), GenerationConfig())
    assert handle_overflow(row, SlidingWindow(0.5), limit=12) == []
    assert row.context == list(range(13))[-6:]
    handle_overflow(row, StopAtLimit(), limit=12)
    assert row.finish_reason == "context"


def test_room_is_for_the_longest_or_for_what_is_wanted():
    rows = [
        GeneratedSequence([1] * 4, GenerationConfig(max_tokens=3)),
        GeneratedSequence([1] * 9, GenerationConfig(max_tokens=3)),
    ]
    assert remaining_tokens(rows, 10) == 1
    assert remaining_tokens(rows, 20) == remaining_tokens(rows, None) == 3


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
def test_an_absurd_share_is_refused(share):
    with pytest.raises(ValueError, match=f"^share is {share}, but it must be above 0 and below 1"):
        SlidingWindow(share)
