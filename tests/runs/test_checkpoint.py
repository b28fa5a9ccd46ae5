"""Checkpoints: written atomically, and damaged ones are never used."""

import json
import os
import stat

import pytest
import torch
from safetensors import SafetensorError

from clearformer.runs import checkpoint, faults

POINTS = [point for point in faults.POINTS if point != "during_prune"]  # has its own test


class Crashed(BaseException):
    """Simulates the end of the process: no except clause catches it."""


def crash_at(point):
    def reached(name):
        if name == point:
            raise Crashed

    return reached


def write(folder, step, value=0.0, **more):
    tensors = {
        "model.safetensors": {"weight": torch.full((4, 4), float(value))},
        "optimizer.safetensors": {"weight.slot": torch.full((4, 4), -float(value))},
        "state.safetensors": {"generator.cpu": torch.arange(4)},
    }
    documents = {"state.json": {"step": step, "third": 1 / 3}}
    return checkpoint.write(folder, step, tensors, documents, {"torch": "x"}, **more)


def newest(folder):
    said = []
    return checkpoint.newest(folder, said.append), said


def test_round_trip(tmp_path):
    write(tmp_path, 3, value=1.5)
    found, said = newest(tmp_path)
    assert found.step == 3
    assert said == []
    assert found.tensors("model.safetensors")["weight"].equal(torch.full((4, 4), 1.5))
    assert found.json("state.json") == {"step": 3, "third": 1 / 3}
    assert found.manifest["torch"] == "x"


def test_files_have_the_mode_that_the_umask_gives(tmp_path):
    old = os.umask(0o027)
    try:
        folder = write(tmp_path, 1).folder
    finally:
        os.umask(old)
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o640, path


def test_newest_is_chosen_by_step_not_time(tmp_path):
    for step in (10, 9, 100):
        write(tmp_path, step)
    os.utime(tmp_path / "step-9", (2e9, 2e9))
    assert newest(tmp_path)[0].step == 100


def test_newest_returns_none_without_checkpoint(tmp_path):
    assert newest(tmp_path) == (None, [])
    assert newest(tmp_path / "absent") == (None, [])


@pytest.mark.parametrize("point", POINTS)
def test_crash_at_any_point_leaves_valid_checkpoint(tmp_path, point):
    write(tmp_path, 1, value=1)
    write(tmp_path, 2, value=2)
    step = 2 if point == "during_swap" else 3  # a swap needs the folder to be there already
    with pytest.raises(Crashed):
        write(tmp_path, step, value=9, reached=crash_at(point))
    found, _ = newest(tmp_path)
    expected = {"after_rename": 9.0}.get(point, 2.0)
    assert found.tensors("model.safetensors")["weight"][0, 0] == expected
    checkpoint.clean_up(tmp_path, found, say=print)
    assert newest(tmp_path)[0].step == (3 if point == "after_rename" else 2)
    again = write(tmp_path, step, value=9)
    assert again.tensors("model.safetensors")["weight"][0, 0] == 9
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".tmp")]


def damages(size):
    yield "empty", lambda content: b""
    yield "8 bytes", lambda content: content[:8]
    yield "half", lambda content: content[: size // 2]
    yield "one byte short", lambda content: content[:-1]
    for place in (0, size // 2, size - 1):
        yield (
            f"bit {place}",
            lambda content, place=place: (
                content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
            ),
        )


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]
)
def test_damage_is_detected_and_previous_checkpoint_used(tmp_path, name):
    write(tmp_path, 1)
    path = write(tmp_path, 2).folder / name
    content = path.read_bytes()
    for what, damage in damages(len(content)):
        path.write_bytes(damage(content))
        found, said = newest(tmp_path)
        assert found.step == 1, what
        assert "step-2" in said[0], what
    path.unlink()
    assert newest(tmp_path)[0].step == 1


def test_rejects_folder_with_only_damaged_checkpoints(tmp_path):
    (write(tmp_path, 1).folder / "state.json").unlink()
    with pytest.raises(ValueError, match=r"none of the 1 checkpoints in .* can be read"):
        newest(tmp_path)


def test_rejects_newer_format(tmp_path):
    path = write(tmp_path, 1).folder / "manifest.json"
    manifest = json.loads(path.read_text()) | {"format": 7}
    path.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="format 7, but this clearformer reads up to 2"):
        checkpoint.verify(path.parent)


def test_shards_folder_is_moved_in_and_hashed(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/one").write_bytes(b"abc")
    tensors = {"model.safetensors": {"a": torch.zeros(2)}}
    found = checkpoint.write(tmp_path, 1, tensors, {}, {}, shards=tmp_path / "parts")
    assert found.manifest["files"]["shards/one"]["bytes"] == 3
    assert not (tmp_path / "parts").exists()
    (found.folder / "shards/one").write_bytes(b"abd")
    with pytest.raises(ValueError, match="shards/one was altered"):
        checkpoint.verify(found.folder)


def test_rejects_manifest_with_paths_outside_folder(tmp_path):
    path = write(tmp_path, 1).folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    manifest["files"]["../secret"] = {"bytes": 1, "sha256": ""}
    path.write_text(checkpoint.sealed(manifest))
    with pytest.raises(ValueError, match="not a plain file name"):
        checkpoint.verify(path.parent)


def test_log_spaced_steps():
    assert [step for step in range(300) if checkpoint.is_log_spaced(step)] == [0, 4, 16, 64, 256]


def test_prune_keeps_last_and_best(tmp_path):
    for step in range(1, 7):
        write(tmp_path, step)
    checkpoint.prune(tmp_path, keep=2, best=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-3", "step-5", "step-6"]


def test_clean_up_renames_damaged_checkpoints(tmp_path):
    for step in (1, 2, 3, 8, 9):
        write(tmp_path, step)
    for step in (2, 8, 9):
        (tmp_path / f"step-{step}" / "model.safetensors").write_bytes(b"cut")
    (tmp_path / "step-999").mkdir()
    found, _ = newest(tmp_path)
    assert found.step == 3
    said = []
    checkpoint.clean_up(tmp_path, found, said.append)
    assert len(said) == 4
    assert "step-9 is damaged and was renamed to damaged-step-9; it can be deleted" in " ".join(
        said
    )
    write(tmp_path, 4)
    checkpoint.prune(tmp_path, keep=2, best=1)
    assert newest(tmp_path) == (checkpoint.verify(tmp_path / "step-4"), [])
    kept = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("step-"))
    assert kept == ["step-1", "step-3", "step-4"]


def test_clean_up_restores_checkpoint_of_interrupted_swap(tmp_path):
    write(tmp_path, 2, value=7).folder.rename(tmp_path / "before")
    write(tmp_path, 2, value=9)
    (tmp_path / "before").rename(tmp_path / ".old-step-2")  # a swap that was cut off
    (tmp_path / "step-2" / "model.safetensors").write_bytes(b"cut")
    found, _ = newest(tmp_path)
    checkpoint.clean_up(tmp_path, found, say=print)
    again, passed_over = newest(tmp_path)
    assert not passed_over
    assert again.folder.name == "step-2"
    assert again.tensors("model.safetensors")["weight"][0, 0] == 7


def test_rejects_manifest_that_does_not_match_folder(tmp_path):
    write(tmp_path, 3).folder.rename(tmp_path / "step-30")
    with pytest.raises(ValueError, match=r"does not match its folder: it is of step 3 with"):
        checkpoint.verify(tmp_path / "step-30")
    manifest = {"format": checkpoint.FORMAT, "step": 5, "files": {}}
    (tmp_path / "step-5").mkdir()
    (tmp_path / "step-5" / "manifest.json").write_text(checkpoint.sealed(manifest))
    with pytest.raises(ValueError, match=r"is of step 5 with 0 files"):
        checkpoint.verify(tmp_path / "step-5")
    found = write(tmp_path, 6)
    (found.folder / "more.json").write_text("{}")
    with pytest.raises(ValueError, match=r"has no more.json in its manifest"):
        found.json("more.json")


def test_crash_while_pruning_keeps_newest(tmp_path):
    for step in range(1, 4):
        write(tmp_path, step)
    with pytest.raises(Crashed):
        checkpoint.prune(tmp_path, keep=2, best=None, reached=crash_at("during_prune"))
    assert newest(tmp_path)[0].step == 3


def test_full_disk_is_reported_before_writing(tmp_path, monkeypatch):
    write(tmp_path, 1)
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"no space for a checkpoint .* 0.0 MiB are free"):
        write(tmp_path, 2)
    monkeypatch.undo()
    assert newest(tmp_path)[0].step == 1


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (OSError(28, "No space left on device"), "no space for a checkpoint in .* it needs 1.0"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "no space for a ch"),
        (OSError(5, "Input/output error"), "step 2 could not be written to .*: Input/output error"),
    ],
)
def test_disk_error_while_writing_keeps_previous_checkpoint(tmp_path, monkeypatch, problem, words):
    write(tmp_path, 1)

    def full(*arguments):
        raise problem

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match=words):
        write(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_identical_checkpoint_is_not_rewritten(tmp_path):
    first = write(tmp_path, 1, value=3)
    inode = first.folder.stat().st_ino
    assert write(tmp_path, 1, value=3).folder.stat().st_ino == inode
    assert write(tmp_path, 1, value=4).folder.stat().st_ino != inode
    # What has the right hashes written down is not yet whole.
    (first.folder / "model.safetensors").write_bytes(b"")
    assert write(tmp_path, 1, value=4).step == 1


def test_interrupted_swap_uses_new_checkpoint(tmp_path):
    write(tmp_path, 1, value=1).folder.rename(tmp_path / ".old-step-1")
    write(tmp_path, 1, value=2)
    write(tmp_path, 1, value=1).folder.rename(tmp_path / ".old-step-1")
    write(tmp_path, 1, value=2)
    assert newest(tmp_path)[0].tensors("model.safetensors")["weight"][0, 0] == 2


def test_rejects_named_pipe_instead_of_file(tmp_path):
    for name in ("model.safetensors", "manifest.json"):
        path = write(tmp_path, 1).folder / name
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(ValueError, match="is a named pipe, but a regular file is needed"):
            checkpoint.verify(path.parent)
        path.unlink()


def test_opens_format_1_without_manifest_hash(tmp_path):
    path = write(tmp_path, 1).folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="was altered"):
        checkpoint.verify(path.parent)
    path.write_text(json.dumps(manifest | {"format": 1}))
    assert checkpoint.verify(path.parent).step == 1


def test_as_text_indents_only_short_documents():
    assert checkpoint.as_text({"a": [1]}).count("\n") > 1
    long = {"é" * 5: list(range(20_000))}
    assert "\n" not in checkpoint.as_text(long)
    assert json.loads(checkpoint.as_text(long)) == long


@pytest.fixture
def outside(tmp_path):
    """A checkpoint elsewhere, which no run may delete, rename or write to."""
    path = write(tmp_path, 9, value=9).folder.rename(tmp_path / "outside")
    before = {each.name: each.read_bytes() for each in path.iterdir()}
    yield path
    assert {each.name: each.read_bytes() for each in path.iterdir()} == before


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "checkpoints"
    for step in (1, 2):
        write(path, step, value=step)
    return path


def test_symlinked_checkpoint_is_treated_as_damaged(folder, outside):
    (folder / "step-9").symlink_to(outside)
    found, said = newest(folder)
    assert found.step == 2
    assert "step-9 is a symbolic link, but a directory is needed" in said[0]
    checkpoint.clean_up(folder, found, said.append)
    assert (folder / "damaged-step-9").is_symlink()
    with pytest.raises(ValueError, match="is a symbolic link"):
        checkpoint.verify_in_run(folder / "damaged-step-9")
    assert checkpoint.verify(folder / "damaged-step-9").step == 9  # if the user names it


def test_rejects_symlinked_checkpoints_folder(tmp_path, folder, outside):
    (tmp_path / "run").mkdir()
    place = tmp_path / "run" / "checkpoints"
    place.symlink_to(folder)
    for act in (
        lambda: newest(place),
        lambda: checkpoint.clean_up(place, None, print),
        lambda: checkpoint.prune(place, 2, None),
        lambda: checkpoint.numbered(place),
        lambda: write(place, 3),
    ):
        with pytest.raises(ValueError, match="run/checkpoints is a symbolic link"):
            act()
    assert sorted(each.name for each in folder.iterdir()) == ["step-1", "step-2"]


@pytest.mark.parametrize("name", ["step-3", ".old-step-3", ".old-step-1", ".tmp-step-3-{pid}"])
def test_writing_and_pruning_do_not_follow_symlinks(folder, outside, name):
    (folder / name.format(pid=os.getpid())).symlink_to(outside)
    write(folder, 3, value=3)
    checkpoint.prune(folder, 2, None)
    assert [step for step, _ in checkpoint.numbered(folder)] == [2, 3]
    assert newest(folder)[0].tensors("model.safetensors")["weight"][0, 0] == 3
    checkpoint.clean_up(folder, newest(folder)[0], print)
    assert sorted(each.name for each in folder.iterdir()) == ["step-2", "step-3"]


def test_clean_up_removes_symlinks_but_not_targets(folder, outside):
    leftovers = [".tmp-shards-3", ".tmp-step-3-1", f".tmp-step-3-{'9' * 30}", ".old-step-4"]
    for name in leftovers:
        (folder / name).symlink_to(outside)
    (folder / ".tmp-step-5-2").mkdir()
    (folder / ".tmp-step-5-2" / "inner").symlink_to(outside)
    (folder / "damaged-step-2").symlink_to(outside)
    (folder / "step-2" / "state.json").write_text("{}")  # is put aside under that name
    found, said = newest(folder)
    checkpoint.clean_up(folder, found, said.append)
    assert sorted(each.name for each in folder.iterdir()) == ["damaged-step-2", "step-1"]
    assert not (folder / "damaged-step-2").is_symlink()


def test_rejects_symlinked_file(folder, tmp_path):
    for name in ("model.safetensors", "state.json", "manifest.json"):
        path = folder / "step-2" / name
        path.rename(tmp_path / name)
        path.symlink_to(tmp_path / name)  # the right bytes, but elsewhere
        with pytest.raises(ValueError, match=r"is a symbolic link"):
            checkpoint.verify(path.parent)
        path.unlink()
        (tmp_path / name).rename(path)
        found = checkpoint.verify(path.parent)
    path = folder / "step-2" / "model.safetensors"
    path.rename(tmp_path / "weights")
    path.symlink_to(tmp_path / "weights")  # since it was checked
    with pytest.raises(ValueError, match=r"model.safetensors is a symbolic link"):
        found.tensors("model.safetensors")


def test_rejects_shards_missing_from_manifest(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/one").write_bytes(b"abc")
    tensors = {"model.safetensors": {"a": torch.zeros(2)}}
    found = checkpoint.write(tmp_path, 1, tensors, {}, {}, shards=tmp_path / "parts").folder
    (found / "shards/more.safetensors").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match=r"has the file 'more.safetensors', which the manifest"):
        checkpoint.verify(found)
    (found / "shards/more.safetensors").unlink()
    (found / "shards").rename(tmp_path / "elsewhere")
    (found / "shards").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="shards is a symbolic link"):
        checkpoint.verify(found)


NAMES = [
    f"step-{'9' * 30}", "step-٣", "step-²", "step--3", "step-3\n", "step-03", "step-3.5", "step-",
    f".old-step-{'9' * 30}", "damaged-step-3", "step-3 ", "STEP-3",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_ignores_folders_with_similar_names(folder, name):
    write(folder, 5).folder.rename(folder / name)
    found, said = newest(folder)
    assert (found.step, said) == (2, [])
    assert [step for step, _ in checkpoint.numbered(folder)] == [1, 2]
    checkpoint.clean_up(folder, found, said.append)
    checkpoint.prune(folder, 2, None)
    write(folder, 3)
    assert newest(folder)[0].step == 3
    assert (folder / name).exists() or name.startswith(".old-")  # which go, whatever they are
    assert said == []


def test_manifest_error_escapes_control_characters(folder):
    path = folder / "step-2" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    manifest["files"]["a\nb\x1b[31m"] = {"bytes": 1, "sha256": ""}
    path.write_text(checkpoint.sealed(manifest))
    with pytest.raises(ValueError, match="not a plain file name") as problem:
        checkpoint.verify(path.parent)
    assert str(problem.value).isprintable()


def test_write_does_not_recreate_removed_run_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "gone" / "checkpoints", 1)
    assert not (tmp_path / "gone").exists()
