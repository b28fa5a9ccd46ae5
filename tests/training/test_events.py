"""Events are immutable and serializable."""

import dataclasses
import json
from pathlib import Path

import pytest

from clearformer.training.events import Ended, Evaluation, Saved, Skipped, Step

EVENTS = [
    Step(1, 2.5, 0.1, 1.0, 8, 0.5, 0.25),
    Skipped(2, 32768.0, 1),
    Evaluation(3, {"loss": 1.0}, best=True),
    Ended(4, "stopped", 143),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_serialize_to_json(event):
    assert json.loads(json.dumps(vars(event))) == dataclasses.asdict(event)


@pytest.mark.parametrize("event", [*EVENTS, Saved(5, Path("x"))])
def test_events_are_frozen(event):
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.step = 9
