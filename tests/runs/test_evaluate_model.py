"""Evaluation of an opened model (with data and int8: tests/model, tests/cli)."""

from clearformer.runs.evaluate_model import Evaluation
from clearformer.tasks.task import Report


class Fixed(Report):
    @property
    def metrics(self):
        return {"loss": 0.5}

    def lines(self, in_float32=None):
        before = [] if in_float32 is None else [f"in float32 {in_float32.metrics['loss']}"]
        return [*before, "loss 0.5"]


def test_evaluation_prints_like_the_command():
    found = Evaluation(Fixed(), Fixed(), notes=("one row was left out",))
    assert found.metrics == {"loss": 0.5}
    assert str(found) == "note: one row was left out\nin float32 0.5\nloss 0.5"
