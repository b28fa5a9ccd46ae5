"""Segment task: segments of a text that continue from step to step."""

from dataclasses import replace

import pytest

from clearformer.builder import build
from clearformer.config import DataConfig, HiddenMemory, RunConfig, TrainConfig
from clearformer.data import DataFolders
from clearformer.families import xl
from clearformer.tasks import registry
from clearformer.tasks.task import EvaluationOptions, EvaluationRequest

MODEL = replace(
    xl("tiny"), length=8, layers=2, width=16, heads=2, hidden=32, cache=HiddenMemory(length=6)
)
TRAIN = TrainConfig(learning_rate=1e-2, batch_size=4, steps=5)


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {i} of the text\n" for i in range(300)))
    config = RunConfig(model=MODEL, data=DataConfig(source=str(path)), train=TRAIN)
    return registry.load(config, DataFolders(cache=tmp_path))


def test_memory_is_reset_only_at_epoch_start(task):
    assert task.fresh(0)
    assert not task.fresh(1)
    assert task.fresh(task.steps_per_epoch)
    assert not task.same_shape


def test_memory_per_microbatch_and_layer(task):
    memory = task.memory(3)
    assert [len(part) for part in memory.parts] == [2, 2, 2]
    assert memory.parts[0][0].capacity == 6


def test_example_includes_full_memory(task):
    batch, caches = registry.task_of(MODEL).example(task.config, 3, (1, 1))
    assert [past.states.shape for past in caches] == [(3, 6, 16)] * 2
    sums, _ = build(task.config.model).loss(batch, caches)
    assert sums.isfinite().all()


def test_evaluation_uses_memory_and_rejects_stride(task, tmp_path):
    assert "segments of 8 tokens with a memory of 6" in task.evaluate(build(MODEL)).protocol
    options = EvaluationOptions(stride=4)
    places = DataFolders(cache=tmp_path)
    request = EvaluationRequest(task.config, task.tokenizer, options, places)
    with pytest.raises(
        ValueError, match="--stride is for windows, but this model reads consecutive segments"
    ):
        task.task.evaluation_data(request)
