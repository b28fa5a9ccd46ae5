"""`clearformer tensorboard`, and `train --log tensorboard`."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SMALL = ("--layers", "1", "--width", "16", "--heads", "2", "--key-heads", "1", "--hidden", "24",
         "--length", "16", "--batch-size", "4", "--steps", "2", "--evaluations", "1",
         "--threads", "1", "--quiet")  # fmt: skip


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("some words to learn from, again and again\n" * 100)
    return str(path)


def losses(folder):
    read = EventAccumulator(str(folder))
    read.Reload()
    return [event.step for event in read.Scalars("loss/train")]


def test_train_writes_events_and_the_command_writes_them_again(clearformer, text, tmp_path):
    run, out = tmp_path / "run", tmp_path / "all"
    done = clearformer("train", "--data", text, "--out", str(run), *SMALL, "--log", "tensorboard")
    assert done.code == 0, done.err
    assert losses(run / "tensorboard") == [1, 2]
    done = clearformer("tensorboard", str(run), "--out", str(out))
    assert done.code == 0, done.err
    assert done.out == f"wrote {out}/run\nnext: tensorboard --logdir {out}/run\n"
    assert losses(out / "run") == [1, 2]


def test_mistakes_are_one_sentence(clearformer, text, tmp_path):
    done = clearformer("tensorboard", str(tmp_path))
    assert (done.code, done.err) == (
        2, f"clearformer: {tmp_path} is not a run with metrics: it has no metrics.jsonl\n",
    )  # fmt: skip
    done = clearformer("train", "--data", text, "--log", "mlflow", "--out", str(tmp_path / "r"))
    assert done.code == 2
    assert "--log" in done.err
    assert "tensorboard" in done.err
