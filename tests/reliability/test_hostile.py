"""F44 to F47: files from anyone, written here. Nothing runs, nothing escapes, nothing hangs."""

import json
import os
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearformer.data import archives
from clearformer.hub.importing import read
from clearformer.hub.tensors import TensorFile
from clearformer.selftest import hostile, payloads
from clearformer.selftest.nursery import ask
from clearformer.train import checkpoint


def test_f44_no_pickle_runs(tmp_path):
    assert hostile.pickles(tmp_path, every_verb=0).startswith("0 of 30 payloads ran")


def test_f44_the_payloads_would_run_in_a_reader_that_trusts(tmp_path):
    """A corpus that nobody could be hurt by would prove nothing."""
    import pickle

    marker = tmp_path / "marker"
    for name in ("os.system", "exec", "instance", "object"):
        pickle.loads(payloads.as_pickle(payloads.calls(marker)[name]))
        assert marker.exists(), name
        marker.unlink()


def test_f44_pickles_are_read_by_no_verb_without_being_asked(command, place, refused):
    folder = place / "foreign"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(hostile.GPT2))
    pickled = payloads.as_pickle(payloads.calls(place / "marker")["os.system"])
    (folder / "pytorch_model.bin").write_bytes(payloads.as_zip(pickled))
    refused(command("import", folder, "--out", place / "out"), "add --allow-bin")
    refused(command("generate", folder, "x"), "is no run")
    assert not (place / "marker").exists()
    assert not (place / "out").exists()


@pytest.mark.parametrize("kind", payloads.tensor_files())
def test_f45_tensor_files_that_promise_too_much(tmp_path, kind):
    path = tmp_path / "model.safetensors"
    path.write_bytes(payloads.tensor_files()[kind])
    if kind == "not a number":  # which is for the importer to count
        assert list(TensorFile(path).names()) == ["weight"]
        return
    with pytest.raises(ValueError, match="is no sound safetensors file") as refusal:
        TensorFile(path)
    assert len(str(refusal.value)) < 400
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "config.json"])
def test_f45_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(tmp_path, name):
    (tmp_path / "config.json").write_text(json.dumps(hostile.GPT2))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    if name == "config.json":
        (tmp_path / "model.safetensors").write_bytes(payloads.header("{}"))
    with pytest.raises(ValueError, match="no file"):
        read(tmp_path, tokenizer="bytes", allow_bin=True)


def test_f45_a_forged_config_of_a_run_is_refused(command, place, refused):
    for content in ("[" * 100_000, "{}", "\xff", '{"kind": "RunConfig", "model": 3}'):
        (place / "run/config.json").write_text(content, encoding="latin-1")
        refused(command("train", "--resume", "--out", place / "run"), "run/config.json ")


HUGE = {"n_embd": 10**9, "n_layer": 10**9, "vocab_size": 10**12, "n_head": -1, "n_positions": 1e9}


@pytest.mark.parametrize("name", HUGE)
def test_f45_a_config_that_asks_for_too_much_allocates_nothing(tmp_path, name):
    from safetensors.torch import save_file

    save_file(hostile.gpt2_weights(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**hostile.GPT2, name: HUGE[name]}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=rf"{name} is .*, but it must be a whole number from 1 to"):
        read(tmp_path, tokenizer="bytes")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "link"]
)
def test_f45_an_index_opens_no_file_elsewhere(tmp_path, name):
    (tmp_path / "secret.safetensors").write_bytes(b"secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret.safetensors")
    (folder / "config.json").write_text(json.dumps(hostile.GPT2))
    index = {"weight_map": {"transformer.wte.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"no plain file name|a link out of its folder"):
        read(folder, tokenizer="bytes")


def forged(place, name, change):
    """A checkpoint whose maker knows how to write hashes."""
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
def test_f45_a_forged_run_is_refused_or_works(command, place, kind):
    folder = forged(place, *FORGERIES[kind])
    outcome = command("generate", folder.parents[1], "x", "--length", "2")
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
def test_f45_a_run_does_not_go_on_from_a_forged_state(train, place, refused, kind):
    folder = forged(place, *WRONG_STATES[kind])
    refused(train(steps=4), str(folder))


def test_f46_a_pattern_of_somebodys_own_is_refused():
    for pattern in payloads.EVIL_PATTERNS:
        # In a process of its own: a pattern like these runs for hours, and no except stops it.
        said = ask(hostile.encode_by, pattern, seconds=60)
        assert "which is not one of the published ones" in said


def test_f47_archives_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("clearformer.limits.GRACE", 2**20)
    assert hostile.archives(tmp_path) == "0 of 12 archives wrote anything"
    assert "extractall" not in Path(archives.__file__).read_text()
    assert not os.path.exists(tmp_path / "archives" / "escaped")
