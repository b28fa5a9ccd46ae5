"""Opening a run for training: rejected, resumed, and set up from its config."""

from dataclasses import replace

import pytest

from clearformer.training.events import Step


def test_resume_reports_damaged_checkpoint_and_uses_previous(whole, config, start, final):
    folder, _ = whole
    expected = final(folder)
    (folder / "checkpoints/step-12/model.safetensors").write_bytes(b"cut")
    said = []
    run = start(config, folder, resume=True, say=said.append)
    assert run.state.step == 8
    assert "step-12/model.safetensors changed its size" in said[0]
    list(run.events())
    for name, value in final(folder).items():
        assert value.equal(expected[name]), name


def test_rejects_existing_run_without_resume(whole, config, start):
    with pytest.raises(ValueError, match="already holds a run at step 12: add --resume"):
        start(config, whole[0])


def test_rejects_resume_with_other_data(whole, config, tmp_path, start):
    text = tmp_path / "text.txt"
    text.write_text(text.read_text().upper())
    with pytest.raises(ValueError, match=r"the data is not the one that .* was trained with"):
        start(config, whole[0], resume=True)


def test_rejects_resume_without_run(tmp_path, start):
    with pytest.raises(ValueError, match="holds no run to resume"):
        start(None, tmp_path / "empty", resume=True)


def test_label_smoothing_reaches_head(config, tmp_path, start):
    smooth = replace(config, train=replace(config.train, label_smoothing=0.3, steps=1))
    run = start(smooth, tmp_path / "smooth")
    assert run.model.head.smoothing == 0.3
    smoothed = next(event for event in run.events() if isinstance(event, Step))
    plain = next(iter(start(config, tmp_path / "plain").events()))
    assert smoothed.loss != plain.loss
