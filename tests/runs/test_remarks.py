"""Remarks on a finished run."""

from clearformer.runs.remarks import overfitting, rate_too_high


def rows(train, validation):
    """A step for each training loss, and evaluations evenly spread over them."""
    steps = [{"event": "step", "step": i + 1, "train_loss": loss, "learning_rate": 3e-3}
             for i, loss in enumerate(train)]  # fmt: skip
    every = len(train) // len(validation)
    return [*steps, *({"event": "evaluation", "step": every * (i + 1), "validation_loss": loss}
                      for i, loss in enumerate(validation))]  # fmt: skip


FALLING = [2 - 0.01 * i for i in range(100)]


def test_overfitting_is_dated():
    said = overfitting(rows(FALLING, [1.0, 0.6, 0.8, 0.9]))
    assert said.startswith("it overfits since step 50: the validation loss was 0.6000 there and is")
    assert "--patience 2" in said


def test_what_is_no_overfitting():
    assert overfitting(rows(FALLING, [1.0, 0.8, 0.6, 0.61])) is None
    assert overfitting(rows(FALLING[::-1], [1.0, 0.6, 0.8, 0.9])) is None  # both rise
    assert overfitting(rows(FALLING, [0.6, 0.9])) is None  # too few to tell
    assert overfitting(rows(FALLING, ["nan", 0.5, 0.9])) is None


def test_a_jump_of_the_loss():
    said = rate_too_high(rows([*FALLING[:60], *([5.0] * 40)], [1.0]))
    assert "jumped from 1.455 to 5.000 near step 61" in said
    assert "--learning-rate 0.001" in said
    assert rate_too_high(rows(FALLING, [1.0])) is None
    assert rate_too_high(rows([0.01, 0.03] * 50, [1.0])) is None
