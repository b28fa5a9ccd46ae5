"""Opening a run folder."""

from dataclasses import replace

import pytest
import torch

from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.data import DataFolders
from clearformer.families import generator
from clearformer.runs import state
from clearformer.runs.load import open_run
from clearformer.runs.run import Run


@pytest.fixture
def run(tmp_path):
    source = tmp_path / "text.txt"
    source.write_text("some words to learn from, again and again\n" * 100)
    model = replace(generator(), length=16, layers=1, width=16, heads=2, hidden=32)
    config = RunConfig(
        model=model,
        data=DataConfig(source=str(source)),
        train=TrainConfig(
            learning_rate=1e-2, batch_size=4, steps=6, evaluations=2, threads=1, ema_decay=0.5
        ),
    )
    run = Run(config, tmp_path / "run", DataFolders(cache=tmp_path / "cache"))
    list(run.events())
    return run


def test_opened_model_has_ema_weights(run):
    opened = open_run(run.folder)
    for name, parameter in opened.model.named_parameters():
        assert parameter.equal(run.state.ema.weights[name]), name
    assert opened.config == run.config
    assert opened.tokenizer.decode(opened.tokenizer.encode("round trip")) == "round trip"
    assert not opened.model.training


def test_checkpoint_folder_opens_anywhere(run, tmp_path):
    elsewhere = tmp_path / "é x"
    (run.folder / "checkpoints/step-6").rename(elsewhere)
    opened = open_run(elsewhere)
    assert opened.checkpoint.step == 6
    with torch.inference_mode():
        assert opened.model(torch.tensor([[1, 2]])).shape == (1, 2, 256)


def saved_with(run, **last):
    """Save the last checkpoint again with another best evaluation."""
    run.state.best = {"step": 3, "value": 0.1}
    run.state.last = {"step": 6, "value": 0.2, "finished": True, **last}
    state.save(run.checkpoints, run.state, run.config, run.task.tokenizer.to_json(), run.facts)


def test_opens_best_if_last_is_significantly_worse(run):
    saved_with(run, behind=0.1, error=0.01)
    opened = open_run(run.folder)
    sentence = opened.note
    assert opened.checkpoint.step == 3
    assert sentence.startswith(f"{run.folder}: step 3, the best on its validation data; the last")
    assert sentence.endswith(f"for that one give {run.folder}/checkpoints/step-6")
    (run.folder / "checkpoints/step-3").rename(run.folder / "moved")
    assert open_run(run.folder).checkpoint.step == 6


def test_opens_last_if_not_significantly_worse(run):
    saved_with(run, behind=0.1, error=0.06)
    opened = open_run(run.folder)
    assert opened.checkpoint.step == 6
    assert "step 6, the last checkpoint; it is worse than step 3 by 0.1000" in opened.note
    assert opened.note.endswith(f"for that one give {run.folder}/checkpoints/step-3")
    assert open_run(run.folder / "checkpoints/step-3").note is None, "there was no choice"


def test_run_of_earlier_version_opens_best(run):
    saved_with(run)
    run.state.last = None
    state.save(run.checkpoints, run.state, run.config, run.task.tokenizer.to_json(), run.facts)
    assert open_run(run.folder).checkpoint.step == 3


def test_rejects_folder_that_is_not_a_run(tmp_path):
    with pytest.raises(ValueError, match="is not a run: it has no checkpoints folder"):
        open_run(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ValueError, match="has no checkpoint yet"):
        open_run(tmp_path)
