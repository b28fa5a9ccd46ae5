"""`clearformer train` as one of several ranks, and waiting for its first checkpoint."""

import os
import time
from pathlib import Path

from clearformer.distributed import heartbeat, process_group

FLAGS = (
    "--layers 1 --width 16 --heads 2 --key-heads 2 --hidden 32 --length 16 --batch-size 4 "
    "--threads 1 "
    "--precision float32 --evaluations 1 --save-seconds 0 --quiet --resume"
)


def train(folder, *more):
    from clearformer.cli.main import main

    data = Path(folder) / "text.txt"
    data.write_text("the cat sat on the mat, and the dog sat on the log.\n" * 60)
    words = ["train", "modern-tiny", "--data", str(data), "--out", str(Path(folder) / "run")]
    main([*words, *FLAGS.split(), *more])


def train_patiently(folder, *more):
    """On a busy machine the other rank may report late."""
    process_group.LINGER_SECONDS = 60
    train(folder, *more)


def train_impatiently(folder, *more):
    """For a rank whose peer is stopped permanently: it does not wait long for a heartbeat."""
    heartbeat.HEARTBEAT_SECONDS = 0.2
    process_group.LINGER_SECONDS = 0
    train(folder, *more)


def train_on_a_text_of_its_own(folder):
    """Simulates machines with their own copies of the data, one of them outdated."""
    own = Path(folder) / f"own-{os.environ['RANK']}.txt"
    own.write_text(f"text number {os.environ['RANK']} of this test\n" * 60)
    train_patiently(folder, "--steps", "3", "--data", str(own))


def until_saved(folder, ranks):
    # Any checkpoint: a certain one may be pruned between two polls.
    while not any((folder / "run/checkpoints").glob("step-*")):
        written = [path.read_text() for path in sorted(folder.glob("rank-*.txt"))]
        assert all(rank.is_alive() for rank in ranks), written
        time.sleep(0.02)
