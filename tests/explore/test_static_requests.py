"""The requests of the pages without a reader: the first order of words, the film of one head."""

from clearformer.explore import static_requests


def test_first_shuffle_is_that_of_the_page():
    """Computed by `shuffled(n, 1)` of web/src/lib/mathematics.ts."""
    assert sorted(static_requests.shuffled(9)) == list(range(9))
    assert static_requests.shuffled(9) != list(range(9))
    assert static_requests.shuffled(1) == [0]


def test_film_keeps_first_last_and_default():
    checkpoints = [{"id": str(n)} for n in range(40)]
    kept = [each["id"] for each in static_requests.frames(checkpoints, "3")]
    assert {"0", "3", "39"} <= set(kept)
    assert len(kept) <= static_requests.MAX_FRAMES
    assert static_requests.frames(checkpoints[:5], "3") == checkpoints[:5]
