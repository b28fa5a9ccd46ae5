"""F44 to F47: malicious files. No code runs, nothing is written outside, nothing hangs."""

import json
import os
import resource
import shutil
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearformer.data import archives
from clearformer.hub.importing import import_checkpoint
from clearformer.hub.safetensors_files import SafetensorsFile
from clearformer.runs import checkpoint
from clearformer.selftest import malicious_files, untrusted_files
from clearformer.selftest.processes import call
from clearformer.selftest.toy_run import ToyRun


def test_f44_no_pickle_payload_runs(tmp_path):
    assert untrusted_files.pickles(tmp_path, every_verb=0).startswith("0 of 30 payloads ran")


def test_f44_payloads_run_in_unsafe_reader(tmp_path):
    """Harmless payloads would prove nothing."""
    import pickle

    marker = tmp_path / "marker"
    for name in ("os.system", "exec", "instance", "object"):
        pickle.loads(malicious_files.as_pickle(malicious_files.calls(marker)[name]))
        assert marker.exists(), name
        marker.unlink()


def test_f44_pickles_need_explicit_flag(command, place, refused):
    folder = place / "foreign"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(untrusted_files.GPT2))
    pickled = malicious_files.as_pickle(malicious_files.calls(place / "marker")["os.system"])
    (folder / "pytorch_model.bin").write_bytes(malicious_files.as_zip(pickled))
    refused(command("import", folder, "--out", place / "out"), "add --allow-bin")
    refused(command("generate", folder, "x"), "is a pickle, a format that can carry code")
    assert not (place / "marker").exists()
    assert not (place / "out").exists()


@pytest.mark.parametrize("kind", malicious_files.tensor_files())
def test_f45_rejects_forged_tensor_files(tmp_path, kind):
    path = tmp_path / "model.safetensors"
    path.write_bytes(malicious_files.tensor_files()[kind])
    if kind == "not a number":  # which is for the importer to count
        assert list(SafetensorsFile(path).names()) == ["weight"]
        return
    with pytest.raises(ValueError, match="is not a valid safetensors file") as refusal:
        SafetensorsFile(path)
    assert len(str(refusal.value)) < 400
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "config.json"])
def test_f45_rejects_named_pipe_instead_of_file(tmp_path, name):
    (tmp_path / "config.json").write_text(json.dumps(untrusted_files.GPT2))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    if name == "config.json":
        (tmp_path / "model.safetensors").write_bytes(malicious_files.header("{}"))
    with pytest.raises(ValueError, match=r"not a (regular )?file"):
        import_checkpoint(tmp_path, tokenizer="bytes", allow_bin=True)


def test_f45_rejects_forged_run_config(command, place, refused):
    for content in ("[" * 100_000, "{}", "\xff", '{"kind": "RunConfig", "model": 3}'):
        (place / "run/config.json").write_text(content, encoding="latin-1")
        refused(command("train", "--resume", "--out", place / "run"), "run/config.json ")


HUGE = {"n_embd": 10**9, "n_layer": 10**9, "vocab_size": 10**12, "n_head": -1, "n_positions": 1e9}


@pytest.mark.parametrize("name", HUGE)
def test_f45_huge_config_allocates_nothing(tmp_path, name):
    from safetensors.torch import save_file

    save_file(untrusted_files.gpt2_weights(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**untrusted_files.GPT2, name: HUGE[name]}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=rf"{name} is .*, but it must be a whole number from 1 to"):
        import_checkpoint(tmp_path, tokenizer="bytes")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "link"]
)
def test_f45_index_opens_no_file_outside_folder(tmp_path, name):
    (tmp_path / "secret.safetensors").write_bytes(b"secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret.safetensors")
    (folder / "config.json").write_text(json.dumps(untrusted_files.GPT2))
    index = {"weight_map": {"transformer.wte.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"not a plain file name|a link out of its folder"):
        import_checkpoint(folder, tokenizer="bytes")


def forged(place, name, change):
    """A forged checkpoint with valid hashes."""
    folder = place / "run/checkpoints/step-3"
    path = folder / name
    if path.suffix == ".safetensors":
        tensors = {key: value.clone() for key, value in load_file(path).items()}
        save_file(change(tensors), path)
    else:
        content = change(json.loads(path.read_text()))
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]
    manifest["files"][name] = checkpoint._identity(path)
    (folder / "manifest.json").write_text(checkpoint.sealed(manifest))
    return folder


FORGERIES = {
    "width": ("config.json", lambda c: {**c, "model": {**c["model"], "width": 10**9}}),
    "layers": ("config.json", lambda c: {**c, "model": {**c["model"], "layers": 99}}),
    "no config": ("config.json", lambda c: []),
    "deep": ("config.json", lambda c: "[" * 100_000),
    "kind": ("config.json", lambda c: {**c, "model": {"kind": "os.system"}}),
    "no tokenizer": ("tokenizer.json", lambda c: {"kind": "bpe"}),
    "state": ("state.json", lambda c: [1, 2]),
    "best": ("state.json", lambda c: {**c, "best": {"step": "../../.."}}),
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_f45_forged_run_is_rejected_or_works(command, place, kind):
    folder = forged(place, *FORGERIES[kind])
    outcome = command("generate", folder.parents[1], "x", "--max-tokens", "2")
    assert outcome.clean, outcome.err
    assert outcome.code == (0 if kind in ("state", "best") else 2)


def _slot(tensors, make):
    name = next(key for key in tensors if key.endswith(".exp_avg"))
    return {**tensors, name: make(tensors[name])}


WRONG_STATES = {
    **{
        f"{name} {value!r}": ("state.json", lambda c, n=name, v=value: {**c, n: v})
        for name, values in {
            "step": ("3", 1.5, 10**30, 2),
            "best": ([1], {"step": 3}, {"value": "a", "step": 3}, {"step": 3, "value": "nan"}),
            "seconds": ("x", -1.0, None),
            "evaluated": ("x", -1),
            "empty": ("q",),
        }.items()
        for value in values
    },
    "a list": ("state.json", lambda c: [1, 2]),
    "nothing": ("state.json", lambda c: None),
    "no generator": (
        "state.safetensors",
        lambda t: {k: v for k, v in t.items() if k != "generator.cpu"},
    ),
    "a short generator": (
        "state.safetensors",
        lambda t: {**t, "generator.cpu": t["generator.cpu"][:7].clone()},
    ),
    "a slot of another shape": (
        "optimizer.safetensors",
        lambda t: _slot(t, lambda x: torch.zeros(3, 3, 3)),
    ),
    "a slot of another type": (
        "optimizer.safetensors",
        lambda t: _slot(t, lambda x: torch.zeros(x.shape, dtype=torch.int32)),
    ),
    "a slot of nobody": (
        "optimizer.safetensors",
        lambda t: {**t, "elsewhere.exp_avg": torch.zeros(2)},
    ),
    "no slots": ("optimizer.safetensors", lambda t: {}),
}


@pytest.mark.parametrize("kind", WRONG_STATES)
def test_f45_rejects_resume_from_forged_state(train, place, refused, kind):
    folder = forged(place, *WRONG_STATES[kind])
    refused(train(steps=4), str(folder))


def test_f46_rejects_custom_split_pattern():
    for pattern in malicious_files.EVIL_PATTERNS:
        # In a child process: such a pattern runs for hours and cannot be interrupted.
        said = call(untrusted_files.encode_by, pattern, seconds=60)
        assert "which is not one of the published ones" in said


def test_f47_archives_write_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr("clearformer.limits.RATIO_FREE_BYTES", 2**20)
    assert untrusted_files.archives(tmp_path) == "0 of 12 archives wrote anything"
    assert "extractall" not in Path(archives.__file__).read_text()
    assert not os.path.exists(tmp_path / "archives" / "escaped")


# --- untrusted run folders -----------------------------------------------------------------

RUN_FILES = [
    *("lock", "metrics.jsonl", "samples.jsonl", "config.json", "tokenizer.json", "README.md"),
    *("loss.png", "stop", "checkpoints", "checkpoints/step-3", "checkpoints/step-4"),
    *("checkpoints/.old-step-3", "checkpoints/.old-step-4", "checkpoints/.tmp-shards-4"),
    *("checkpoints/damaged-step-3", "checkpoints/step-3/manifest.json"),
    *("checkpoints/step-3/config.json", "checkpoints/step-3/state.json"),
    "checkpoints/step-3/model.safetensors",
]


@pytest.fixture
def elsewhere(place, trained):
    """A file and a checkpoint outside the run folder, which must stay as they are."""
    folder = place / "elsewhere"
    shutil.copytree(trained / "run/checkpoints/step-3", folder)
    (folder / "file").write_text("precious, without an end of line")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    yield folder
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def plant(path, make):
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    make(path)


@pytest.mark.parametrize("name", RUN_FILES)
def test_f45_symlink_in_run_folder_is_not_followed(train, place, elsewhere, name):
    """The run resumes or is rejected, and nothing outside changes."""
    path = place / "run" / name
    target = (
        elsewhere
        if path.suffix == "" and path.parent.name == "checkpoints"
        else (elsewhere / "file")
    )
    target = elsewhere.parent if name == "checkpoints" else target
    plant(path, lambda path: path.symlink_to(target))
    outcome = train(steps=4)
    assert outcome.clean, outcome.err
    if name in ("lock", "metrics.jsonl", "samples.jsonl", "config.json", "checkpoints"):
        assert outcome.code == 2
        assert f"run/{name} is a symbolic link" in outcome.err
    else:
        assert outcome.code == 0, outcome.err
        assert checkpoint.newest(place / "run/checkpoints", print).step == 4
        assert not (place / "run/README.md").is_symlink()


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl", "samples.jsonl", "config.json"])
def test_f45_hard_link_target_is_not_modified(train, place, elsewhere, name):
    """As in a backup by `cp -al`, which must not change with the run."""
    if name == "config.json":
        (elsewhere / "file").unlink()
        shutil.copy(place / "run" / name, elsewhere / "file")
    content = (elsewhere / "file").read_bytes()
    plant(place / "run" / name, lambda path: os.link(elsewhere / "file", path))
    assert train(steps=4).code == 0
    assert (elsewhere / "file").read_bytes() == content
    (elsewhere / "file").write_text("precious, without an end of line")


FOREIGN = {
    "pipe": os.mkfifo,
    "passwd": lambda path: path.symlink_to("/etc/passwd"),
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "digits": lambda path: path.write_text("9" * 5000),
    "infinity": lambda path: path.write_text('{"step": 1e999, "model": NaN, "train": Infinity}'),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_f45_every_command_rejects_links_to_foreign_files(command, place, refused, kind):
    run = place / "run"
    plant(run / "config.json", FOREIGN[kind])
    for words in (["describe", run], ["plan", run], ["train", "--resume", "--out", run]):
        assert "root:" not in refused(command(*words), "run/config.json ")
    for name in ("state.json", "config.json", "tokenizer.json", "manifest.json"):
        plant(run / "checkpoints/step-3" / name, FOREIGN[kind])
    shutil.rmtree(run / "checkpoints/step-2", ignore_errors=True)
    for words in (
        ["generate", run, "x"],
        ["evaluate", run],
        ["average", run, "--last", "1", "--out", place / "out"],
        ["export", run, "--out", place / "out"],
        ["generate", run / "checkpoints/step-3", "x"],
    ):
        assert "root:" not in refused(command(*words))
    assert not (place / "out").exists()


NUMBERS = ["9" * 30, "٣", "-3", "3\n", "²"]


@pytest.mark.parametrize("number", NUMBERS, ids=ascii)
def test_f45_malformed_folder_names_are_ignored(train, command, place, number):
    folder = place / "run/checkpoints"
    names = ("step-{}", ".old-step-{}", "damaged-step-{}", ".tmp-step-4-{}", ".tmp-shards-{}")
    for name in names:
        shutil.copytree(folder / "step-3", folder / name.format(number))
    assert command("average", place / "run", "--last", "1", "--out", place / "out").code == 0
    outcome = train(steps=4)
    assert (outcome.code, outcome.clean) == (0, True), outcome.err
    assert checkpoint.newest(folder, print).step == 4
    assert not [each.name for each in folder.iterdir() if each.name.startswith(".")]


def test_f17_removed_run_folder_ends_run(place, refused):
    """At its next save, since a run without output has not finished."""
    toy = ToyRun(place, 10**6)
    child = toy.start(place / "long")
    path = place / "long/checkpoints"
    while child.alive() and not (path.is_dir() and any(path.glob("step-*"))):
        time.sleep(0.01)
    (place / "long").rename(place / "moved")
    code = child.wait()
    said = child.output()
    assert code == 2, said
    assert "Traceback" not in said
    assert f"the run folder {place / 'long'} was removed, moved or replaced" in said
    assert not (place / "long").exists()
    assert checkpoint.newest(place / "moved/checkpoints", print).step > 0
