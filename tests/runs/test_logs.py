"""Logs for other tools: names of scalars, no point twice, and writers that fail."""

import math

import pytest

from clearformer.runs.logs import Logs, Scalars, saved_rows, seconds_of
from clearformer.training.events import Ended, Evaluation, Skipped, Step


class Kept:
    """A writer that keeps what it is given."""

    def __init__(self):
        self.points, self.closed = [], False

    def write(self, step, scalars, seconds):
        self.points.append((step, dict(scalars), seconds))

    def close(self):
        self.closed = True


def step(number, seconds, tokens):
    return Step(number, 2.0, 0.1, 0.5, tokens, seconds, 0.0)


def test_scalars_have_the_usual_names():
    kept = Kept()
    logs = Logs({"kept": lambda: kept}, "tokens", pytest.fail)
    logs.event(step(1, 2.0, 100))
    logs.event(step(2, 3.0, 300))
    logs.event(Evaluation(2, {"loss": 1.5, "bits_per_byte": 2.5}, True, error=0.1))
    logs.event(Skipped(3, 1024.0, 1))
    logs.event(Ended(3, "finished"))
    logs.close()
    first = {"loss/train": 2.0, "lr": 0.1, "grad_norm": 0.5, "tokens_per_second": 50.0,
             "tokens": 100.0}  # fmt: skip
    validation = {"loss/validation": 1.5, "bits_per_byte/validation": 2.5,
                  "standard_error/validation": 0.1}  # fmt: skip
    assert kept.points == [
        (1, first, 2.0),
        (2, {**first, "tokens_per_second": 200.0, "tokens": 300.0}, 3.0),
        (2, validation, 3.0),
        (3, {"scale": 1024.0, "skipped": 1.0}, 3.0),
    ]
    assert kept.closed


def test_rows_of_other_tasks_and_versions():
    scalars = Scalars()
    row = {"event": "step", "step": 1, "train_loss": "nan", "hidden_tokens": 10, "seconds": 0.0}
    found = scalars.of(row)
    assert math.isnan(found.pop("loss/train"))
    assert found == {"hidden_tokens": 10.0}  # no time has passed
    assert scalars.of({"event": "end", "step": 1}) == {}
    assert scalars.of(row) == {}  # seen
    assert seconds_of([row, {"event": "evaluation", "step": 1}]) == 0.0


def test_evaluation_that_a_resume_repeats_is_written_once():
    kept = Kept()
    logs = Logs({"kept": lambda: kept}, "tokens", pytest.fail)
    logs.rows([{"event": "evaluation", "step": 5, "best": True, "validation_loss": 1.0}])
    logs.event(Evaluation(5, {"loss": 1.0}, False))
    logs.event(Evaluation(6, {"loss": 0.9}, True))
    assert [number for number, _, _ in kept.points] == [5, 6]


def test_failing_writer_is_noted_once_and_left_out():
    class Broken(Kept):
        def write(self, step, scalars, seconds):
            raise OSError("the disk is full\nand more")

    said, kept = [], Kept()

    def refused():
        raise RuntimeError("no server")

    makers = {"broken": Broken, "refused": refused, "kept": lambda: kept}
    logs = Logs(makers, "tokens", said.append)
    logs.event(step(1, 1.0, 10))
    logs.event(step(2, 2.0, 20))
    logs.close()
    assert said == [
        "note: the log for refused failed and is left out from here on: no server",
        "note: the log for broken failed and is left out from here on: the disk is full",
    ]
    assert [number for number, _, _ in kept.points] == [1, 2]


def test_writer_that_fails_at_the_end():
    class Last(Kept):
        def close(self):
            raise ValueError

    said = []
    Logs({"last": Last}, "tokens", said.append).close()
    assert said == ["note: the log for last failed and is left out from here on: ValueError"]


def test_new_run_has_no_rows(tmp_path):
    assert saved_rows(tmp_path) == []
