"""Process groups: agreement between ranks, shared errors, and naming of hanging ranks."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from clearformer.distributed import process_group
from clearformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup, join
from clearformer.runs import metrics


def test_single_process_without_torchrun():
    assert type(join({}, 60)) is ProcessGroup
    assert SINGLE_PROCESS.is_main
    assert SINGLE_PROCESS.max([1.0, 2.0]) == [1.0, 2.0]
    assert SINGLE_PROCESS.gather("x") == ["x"]
    assert SINGLE_PROCESS.main_first(lambda told: [told], lambda result: result) == [None]
    assert SINGLE_PROCESS.explain(RuntimeError("Timed out")) is None


def test_file_system_timeout_is_not_a_rank_failure():
    group = object.__new__(process_group.DistributedGroup)
    assert group.explain(OSError("Connection timed out")) is None


def problem_of(act):
    try:
        act()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def talk():
    """Every collective operation, once."""
    group = join(os.environ, timeout=300)
    rank = group.rank

    def full():
        raise OSError("no space")

    found = {
        "broadcast": group.broadcast({"from": rank}),
        "gather": group.gather("x" * rank),
        "max": group.max([rank, -rank]),
        "mean": group.mean(torch.tensor(float(rank))).item(),
        "stack": group.stack(torch.tensor([rank, 7])).tolist(),
        "on_main": group.on_main(lambda: f"by {rank}"),
        "full": problem_of(lambda: group.on_main(full)),
        "in turn": group.main_first(lambda told: [rank, told], lambda result: f"{result[0]} first"),
        "first": group.first_to_report("the same sentence"),
        "gone": group.explain(RuntimeError("Connection closed by peer [127.0.0.1]:1")),
        "own": group.explain(RuntimeError("a defect")),
    }
    found["turn problem"] = problem_of(lambda: group.main_first(lambda told: full(), str))
    group.heartbeat.stop()
    group.gather("done")  # rank 0 has the store here, and must not go first
    return found


def test_collective_operations(tmp_path, several):
    one, other = several.run(2, talk, tmp_path)
    for found in (one, other):
        assert found["broadcast"] == {"from": 0}
        assert found["gather"] == ["", "x"]
        assert found["max"] == [1, 0]
        assert found["mean"] == 0.5
        assert found["stack"] == [[0, 7], [1, 7]]
        assert found["on_main"] == "by 0"
        assert found["gone"].startswith("another rank has ended; saved checkpoints are kept")
        assert found["own"] is None
    assert one["in turn"] == [0, None]
    assert other["in turn"] == [1, "0 first"]
    assert sorted([one["first"], other["first"]]) == [False, True]
    # The leader's problem ends all of them, with the same sentence.
    assert (one["full"], other["full"]) == ("OSError: no space", "ValueError: no space")
    assert (one["turn problem"], other["turn problem"]) == (one["full"], other["full"])


def written(folder):
    return [(Path(folder) / f"rank-{rank}.txt").read_text() for rank in range(2)]


def said(folder):
    """Output of the ranks, without torch's warning that the main rank's store is gone."""
    warning = re.compile(r"^\[rank\d\]:\[W.*?\n\n", re.MULTILINE | re.DOTALL)
    return [warning.sub("", text) for text in written(folder)]


def test_error_is_reported_once_and_ends_all_ranks(tmp_path, several, commands):
    flags = ("--steps", "3", "--batch-size", "7")
    with several.started(2, commands.train_patiently, tmp_path, tmp_path, *flags) as ranks:
        for rank in ranks:
            rank.join(300)
        assert [rank.exitcode for rank in ranks] == [2, 2]
    assert sorted(said(tmp_path)) == [
        "",
        "clearformer: a batch of 7 cannot be shared evenly by 2 processes: use one of 1, 7 "
        "processes, or a batch of 6 or 8\n",
    ]


def test_rejects_ranks_with_different_data(tmp_path, several, commands):
    with several.started(2, commands.train_on_a_text_of_its_own, tmp_path, tmp_path) as ranks:
        for rank in ranks:
            rank.join(300)
        assert [rank.exitcode for rank in ranks] == [2, 2]
    assert sorted(said(tmp_path)) == [
        "",
        "clearformer: rank 1 reads other data than rank 0: every rank must read the same files, "
        "and they must not change while a run starts\n",
    ]


def last_words(folder):
    """Rank 0, which holds the store, reports at once, the other a little later; then both exit."""
    process_group.LINGER_SECONDS = 60  # on a busy machine a little later is a lot later
    group = process_group.join(os.environ, 300)
    while group.rank and not group.store.check(["asked"]):
        time.sleep(0.02)
    print(group.first_to_report("the same"))
    group.exit(2)


def test_store_outlives_reports_of_other_ranks(tmp_path, several):
    with several.started(2, last_words, tmp_path, tmp_path) as ranks:
        for rank in ranks:
            rank.join(300)
        assert [rank.exitcode for rank in ranks] == [2, 2]
    assert written(tmp_path) == ["True\n", "False\n"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGSTOP")
def test_hanging_rank_is_named_and_job_ends(hanging):
    folder, ranks = hanging
    ranks[0].join(300)
    assert ranks[0].exitcode == 2
    sentence = said(folder)[0].splitlines()[-1]
    assert sentence.startswith("clearformer: waited 20 s for rank 1, silent since step ")
    assert sentence.endswith("saved checkpoints are kept: continue with --resume")
    last = metrics.read(folder / "run/metrics.jsonl")[-1]
    assert (last["event"], last["reason"], last["exit"]) == ("end", "lost a rank", 2)


def test_one_signal_stops_all_ranks_after_the_same_step(tmp_path, several, commands):
    with several.started(2, commands.train, tmp_path, tmp_path, "--steps", "100000") as ranks:
        commands.until_saved(tmp_path, ranks)
        os.kill(ranks[1].pid, signal.SIGTERM)
        for rank in ranks:
            rank.join(300)
        assert [rank.exitcode for rank in ranks] == [143, 143]
    last = (tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1]
    assert '"event": "end"' in last
    assert '"reason": "stopped"' in last


def test_distributed_group_overrides_every_method():
    own = {name for name in vars(process_group.DistributedGroup) if not name.startswith("_")}
    inherited = {name for name in vars(ProcessGroup) if not name.startswith("_")}
    assert inherited - own <= {"rank", "world_size", "restarts", "is_main"}
