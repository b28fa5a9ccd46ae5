"""F1 to F17: checkpoints and run folders, on the command line."""

import json
import os
import random
import shutil
import signal

import numpy as np
import pytest
import torch

from clearformer.distributed.process_group import SINGLE_PROCESS
from clearformer.runs import checkpoint, metrics
from clearformer.runs.faults import VARIABLE
from clearformer.runs.lock import Lock
from clearformer.selftest.toy_run import ToyRun, fingerprint, last_record, newest_step
from clearformer.training import rng

CPU = torch.device("cpu")


@pytest.mark.parametrize("point", ["after_model", "before_rename", "during_swap"])
def test_f2_f3_crash_while_saving_is_cleaned_up(place, point):
    toy = ToyRun(place, 4)
    child = toy.start(place / "new", **{VARIABLE: f"crash:{point}@{4 if 'swap' in point else 3}"})
    assert child.wait() == -signal.SIGKILL
    left = [path.name for path in (place / "new/checkpoints").iterdir()]
    assert any(name.startswith((".tmp-", ".old-")) for name in left)
    assert newest_step(place / "new") >= 2
    toy.finish(place / "new")
    toy.finish(place / "whole")
    assert fingerprint(place / "new") == fingerprint(place / "whole")
    assert not list((place / "new/checkpoints").glob(".*"))


def test_f3_crash_in_first_save_is_cleaned_up(train, place, monkeypatch):
    stale = place / "fresh/checkpoints/.tmp-step-1-999"
    stale.mkdir(parents=True)
    assert train(folder="fresh").code == 0
    assert not stale.exists()


def test_f4_full_disk_is_reported_and_old_checkpoint_kept(train, place, refused, monkeypatch):
    monkeypatch.setenv(VARIABLE, "enospc@4")
    refused(train(steps=6), "no space for a checkpoint", "MiB are free", "--resume")
    assert newest_step(place / "run") == 3
    assert last_record(place / "run") == {"event": "end", "step": 4, "reason": "error", "exit": 2}
    monkeypatch.delenv(VARIABLE)
    assert train(steps=6).code == 0


def test_f4_disk_too_small_is_reported_before_first_step(train, place, refused, monkeypatch):
    usage = type("Usage", (), {"free": 2**20 + 1000})
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: usage)
    refused(train(folder="fresh"), "no space", "1.0 MiB are free")
    assert not (place / "fresh/metrics.jsonl").exists()


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:8], lambda b: b[:-1]])
def test_f5_truncated_file_is_skipped_by_train_and_rejected_by_others(
    train, command, place, refused, damage
):
    path = place / "run/checkpoints/step-3/model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    refused(command("generate", place / "run", "x"), "model.safetensors changed its size", "step-2")
    refused(command("evaluate", place / "run"), "model.safetensors changed its size")
    outcome = train()
    assert outcome.code == 0
    assert "passed over a damaged checkpoint" in outcome.err
    assert newest_step(place / "run") == 3


def test_f1_f14_run_that_fell_back_keeps_new_checkpoints(train, place):
    assert train("--keep-checkpoints", "5", folder="more", steps=4).code == 0
    checkpoints = place / "more/checkpoints"
    for number in (3, 4):
        path = checkpoints / f"step-{number}/model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
    (checkpoints / "step-999").mkdir()
    outcome = train("--keep-checkpoints", "2", "--resume", folder="more", steps=5)
    assert outcome.code == 0, outcome.err
    assert "was renamed to damaged-step-4; it can be deleted" in outcome.err
    assert newest_step(place / "more") == 5
    kept = {path.name for path in checkpoints.iterdir() if path.name.startswith("step-")}
    assert {"step-4", "step-5"} <= kept
    assert "step-999" not in kept


def test_f6_flipped_bit_in_any_file_is_detected(command, place, refused):
    for path in sorted((place / "run/checkpoints/step-3").iterdir()):
        content = path.read_bytes()
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :])
        refused(command("generate", place / "run", "x"), path.name)
        path.write_bytes(content)
    assert command("generate", place / "run", "x", "--max-tokens", "2").code == 0


def test_f7_rejects_out_that_is_a_file(train, place, refused):
    (place / "file").touch()
    refused(train(folder="file"), "cannot be written to", "choose another --out")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_f7_rejects_folder_without_permission(train, place, refused):
    (place / "closed").mkdir()
    (place / "closed").chmod(0o500)
    refused(train(folder="closed/run"), "Permission denied", "choose another --out")


def test_f8_changed_settings_are_listed(train, place, refused):
    flags = ("--model.width", "32", "--train.seed", "5", "--train.batch-size", "8")
    said = refused(train(*flags, steps=9))
    listed = {part.split(" (")[0].split(": ")[-1] for part in said.split("; ")}
    assert listed == {"model.width", "train.batch_size", "train.seed"}
    outcome = train("--keep-checkpoints", "3", steps=4)
    assert outcome.code == 0
    assert "note: train.steps was 3 and is 4 from now on" in outcome.err
    assert "note: train.keep_checkpoints was 2 and is 3" in outcome.err


def test_f10_other_machine_is_reported_and_loss_stays_close(trained, place, command):
    path = place / "run/checkpoints/step-3/manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    changed = manifest | {"threads": 7, "cpu": "ABACUS", "device": "cuda:3", "torch": "2.99"}
    path.write_text(checkpoint.sealed(changed))
    (place / "run/checkpoints/step-2").rename(place / "elsewhere")
    outcome = command(*ToyRun(place, 5).arguments(place / "run"))
    assert outcome.code == 0, outcome.err
    for words in ("threads was 7 and is 1", "cpu was ABACUS", "device was cuda:3", "torch was 2.9"):
        assert words in outcome.err
    assert outcome.err.count("not bit for bit") == 4


def test_f10_threads_default_to_environment(place, command):
    before = torch.get_num_threads()
    losses = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        words = ToyRun(place, 2).arguments(place / str(threads))
        at = words.index("--threads")
        del words[at : at + 2]
        assert command(*words).code == 0
        manifest = checkpoint.newest(place / f"{threads}/checkpoints", print).manifest
        assert manifest["threads"] == threads
        curve = metrics.read(place / f"{threads}/metrics.jsonl")
        losses[threads] = [r["train_loss"] for r in curve if r["event"] == "step"]
    torch.set_num_threads(before)
    assert losses[1] == pytest.approx(losses[2], rel=1e-4)


def test_f11_every_random_generator_is_restored():
    rng.seed(3)
    random.gauss(0, 1)
    np.random.standard_normal()
    saved = rng.states(CPU, SINGLE_PROCESS)
    wanted = (random.gauss(0, 1), random.random(), np.random.standard_normal(3), torch.rand(2))
    rng.seed(4)
    rng.restore(saved, CPU, rank=0)
    again = (random.gauss(0, 1), random.random(), np.random.standard_normal(3), torch.rand(2))
    assert wanted[:2] == again[:2]
    assert np.array_equal(wanted[2], again[2])
    assert wanted[3].equal(again[3])


def test_f12_samples_after_resume_match_uninterrupted_run(train, place):
    def samples(outcome):
        assert outcome.code == 0, outcome.err
        return [line for line in outcome.out.splitlines() if ": samples " in line]

    whole = samples(train("--log.samples", folder="whole", steps=6))
    assert len(whole) == 6
    assert samples(train("--log.samples", steps=6)) == whole[3:]
    as_json = train("--log.samples", "--json", "--no-quiet", folder="json", steps=2).out
    events = [json.loads(line) for line in as_json.splitlines()]
    ids = [event["ids"] for event in events if event["event"] == "samples"]
    wanted = [line.split("samples ")[1] for line in whole[:2]]
    assert [" ".join(map(str, each)) for each in ids] == wanted


def test_f14_fifty_saves_keep_last_two_and_best(train, place, monkeypatch):
    most = []
    prune = checkpoint.prune

    def counting(folder, *arguments):
        most.append(len(list(folder.glob("step-*"))))
        prune(folder, *arguments)
        assert checkpoint.newest(folder, print) is not None

    monkeypatch.setattr(checkpoint, "prune", counting)
    assert train(folder="long", steps=50).code == 0
    assert len(most) >= 50
    assert max(most) <= 4
    left = {path.name for path in (place / "long/checkpoints").iterdir()}
    assert {"step-49", "step-50"} <= left
    assert len(left) <= 3


def test_f15_rejects_second_process_without_side_effects(train, place, refused):
    unfinished = place / "run/checkpoints/.tmp-step-4-1"
    unfinished.mkdir()
    lock = Lock(place / "run")
    refused(train(steps=6), "is being trained by another process", f"process {os.getpid()} on")
    assert unfinished.exists(), "what the first one is writing was taken away"
    lock.release()
    assert train(steps=6).code == 0


def test_f16_steps_before_first_checkpoint_count_once(place, train):
    toy = ToyRun(place, 2)
    child = toy.start(place / "early", **{VARIABLE: "crash:after_model@1"})
    assert child.wait() == -signal.SIGKILL
    assert newest_step(place / "early") == -1
    assert train(folder="early", steps=2).code == 0
    curve = metrics.read(place / "early/metrics.jsonl")
    assert [record["step"] for record in curve if record["event"] == "step"] == [1, 2]


def test_f16_torn_line_is_removed_and_every_line_parses(train, place):
    for name in ("metrics.jsonl", "samples.jsonl"):
        with (place / "run" / name).open("a") as file:
            file.write('{"step": 99, "lo')
    assert train(steps=5).code == 0
    for name in ("metrics.jsonl", "samples.jsonl"):
        lines = (place / "run" / name).read_text().splitlines()
        assert {"event": "resume", "step": 3, "version": 2} in [json.loads(line) for line in lines]
    steps = [r["step"] for r in metrics.read(place / "run/metrics.jsonl") if r["event"] == "step"]
    assert steps == [1, 2, 3, 4, 5]


def test_f17_moved_run_resumes_from_new_folder(place, command, monkeypatch):
    monkeypatch.chdir(place)
    toy = ToyRun(place, 3)
    words = [word.replace(f"{place}/", "") for word in toy.arguments(place / "moving")]
    assert command(*words).code == 0
    elsewhere = place / "é x" / "run"
    elsewhere.parent.mkdir()
    shutil.move(place / "moving", elsewhere)
    os.utime(elsewhere / "checkpoints/step-2", (2e9, 2e9))  # a clock that jumped
    monkeypatch.chdir(elsewhere.parent)
    outcome = command("train", "--resume", "--out", "run", "--steps", "5", "--quiet")
    assert outcome.code == 0, outcome.err
    assert newest_step(elsewhere) == 5
    (place / "text.txt").rename(place / "renamed.txt")
    moved = ("--data", place / "renamed.txt")
    outcome = command("train", "--resume", "--out", "run", "--steps", "6", "--quiet", *moved)
    assert outcome.code == 0, outcome.err


def test_exit_codes_and_end_lines(train, place, monkeypatch):
    """0 here, 2 in F4, 3 in F19, 130 and 143 in F27; and a defect is 1."""
    assert last_record(place / "run") == {
        "event": "end",
        "step": 3,
        "reason": "finished",
        "exit": 0,
    }

    def broken(*arguments):
        raise ZeroDivisionError("a defect of ours")

    monkeypatch.setattr("clearformer.training.step.train_step", broken)
    outcome = train(steps=9)
    assert outcome.code == 1
    assert "ZeroDivisionError" in outcome.err
    assert last_record(place / "run") == {"event": "end", "step": 3, "reason": "error", "exit": 1}
