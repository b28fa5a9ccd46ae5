"""Runs whose folder is removed or moved stop with an error."""

import shutil

import pytest

from clearformer.runs import metrics
from clearformer.runs.faults import Faults
from clearformer.training.events import Saved, Step


def gone(folder):
    shutil.rmtree(folder)


def moved(folder):
    folder.rename(folder.with_name("moved"))


def replaced(folder):
    folder.rename(folder.with_name("moved"))
    shutil.copytree(folder.with_name("moved"), folder)


def without_metrics(folder):
    (folder / "metrics.jsonl").unlink()


@pytest.mark.parametrize("lose", [gone, moved, replaced, without_metrics])
@pytest.mark.parametrize("at", [2, 12])
def test_run_fails_if_folder_is_removed(config, tmp_path, lose, at, start):
    """Before the first checkpoint, or after the last step: a run without output must fail."""
    folder = tmp_path / "run"
    run = start(config, folder)
    events = run.events()
    for event in events:
        if isinstance(event, Step) and event.step == at:
            break
    lose(folder)
    before = sorted(folder.rglob("*"))
    what = "metrics.jsonl" if folder.exists() else f"the run folder {folder}"
    sentence = f"{what} was removed, moved or replaced while the run was writing to it"
    with pytest.raises(ValueError, match=sentence):
        list(events)
    assert sorted(folder.rglob("*")) == before  # nothing was created again
    if lose is moved and at == 12:
        list(start(None, tmp_path / "moved", resume=True).events())
        assert metrics.read(tmp_path / "moved" / "metrics.jsonl")[-1]["reason"] == "finished"


def test_folder_removed_after_last_checkpoint_is_detected(config, tmp_path, start):
    folder = tmp_path / "run"
    run = start(config, folder)
    events = run.events()
    saves = (event for event in events if event == Saved(12, folder / "checkpoints/step-12"))
    next(saves), next(saves)  # before the last evaluation, and after it
    gone(folder)
    with pytest.raises(ValueError, match=f"the run folder {folder} was removed"):
        list(events)
    assert not folder.exists()


def test_folder_removed_while_saving_is_reported(config, tmp_path, start):
    folder = tmp_path / "run"

    class Removing(Faults):
        def reached(self, step):
            return lambda point: gone(folder) if point == "after_optimizer" else None

    with pytest.raises(ValueError, match=f"the run folder {folder} was removed"):
        list(start(config, folder, faults=Removing()).events())
    assert not folder.exists()


def test_folder_removed_before_first_step_is_detected(config, tmp_path, start):
    folder = tmp_path / "run"
    run = start(config, folder)
    replaced(folder)
    with pytest.raises(ValueError, match="run/lock was removed, moved or replaced"):
        list(run.events())
    assert [each.name for each in folder.iterdir()] == ["lock"]
