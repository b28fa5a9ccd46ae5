"""What happens past the context: stated by a value, refused where it has no meaning."""

import pytest

from clearformer.config import ALiBi, Grid, NoPosition, RelativeXL, Rotary, Sinusoidal
from clearformer.generate.context import Continue, Slide, Stop, limit, room, slide, usual
from clearformer.generate.sequence import Row, Task


def test_the_usual_rule_follows_the_past(small):
    assert usual(small("gpt2")) == Slide()
    assert usual(small("xl")) == Continue()


@pytest.mark.parametrize("position", [Rotary(), ALiBi(), RelativeXL(), Sinusoidal(), NoPosition()])
def test_positions_without_an_end_may_continue(position, small):
    assert limit(Continue(), small("generator", position=position)) is None


def test_learned_positions_end(small):
    assert limit(Slide(), small("gpt2")) == limit(Stop(), small("gpt2")) == 12
    with pytest.raises(ValueError, match=r"^gpt2-small has learned positions, which end at 12: a"):
        limit(Continue(), small("gpt2"))


def test_a_grid_of_positions_ends(small):
    config = small("generator", position=Grid(columns=4))
    with pytest.raises(ValueError, match=r"^generator.* has learned positions, which end at 12: a"):
        limit(Continue(), config)


def test_sliding_keeps_the_last_part():
    row = Row(range(13), Task())
    assert slide(row, Slide(0.5), full=12) == []
    assert row.seen == list(range(13))[-6:]
    slide(row, Stop(), full=12)
    assert row.finished == "context"


def test_room_is_for_the_longest_or_for_what_is_wanted():
    rows = [Row([1] * 4, Task(most=3)), Row([1] * 9, Task(most=3))]
    assert room(rows, 10) == 1
    assert room(rows, 20) == room(rows, None) == 3


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
def test_an_absurd_share_is_refused(share):
    with pytest.raises(ValueError, match=f"^share is {share}, but it must be above 0 and below 1"):
        Slide(share)
