"""Evaluations during a run: a failing sample does not end it."""

import pytest

from clearformer.training.events import Ended, Evaluation


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (ValueError("the prompt\nis empty"), "the prompt is empty"),
        (RuntimeError("you tried to allocate 9 bytes"), "you tried to allocate 9 bytes"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_failing_sample_does_not_end_run(whole, config, tmp_path, problem, reason, start, same_run):
    def sample(run, model):
        raise problem

    said = []
    run = start(config, tmp_path / "run", say=said.append, sample=sample)
    events = list(run.events())
    assert [e.sample for e in events if isinstance(e, Evaluation)] == [None] * 3
    assert events[-1] == Ended(12, "finished")
    notes = [each for each in said if "sample" in each]
    assert notes == [f"note: step {n} has no sample text: {reason}" for n in (4, 8, 12)]
    same_run(whole[0], tmp_path / "run")
