"""Library: finds, names and loads models inside the given folders only."""

import json
import os
import shutil
from contextlib import suppress

import pytest

from clearformer.explore import model_info
from clearformer.explore.library import Library, slug
from clearformer.explore.routes.runs import run_info as listed
from clearformer.http_server.errors import Problem


def test_ids_are_not_paths(one, tmp_path):
    for name in ("<img src=x onerror=alert(1)>", "a b", "a_.._b"):
        one(name)
    library = Library([tmp_path / "runs"])
    assert sorted(library.entries) == ["a-b", "a_-_b", "img-src-x-onerror-alert-1"]
    assert slug("../../etc/passwd") == "etc-passwd"
    for id in ("../../etc/passwd", "a b", "..", ""):
        with pytest.raises(Problem) as problem:
            library.entry(id)
        assert problem.value.status == 404


def test_added_and_removed_models_are_detected(one, tmp_path):
    (tmp_path / "runs").mkdir()
    library = Library([tmp_path / "runs"])
    assert library.models() == []
    run = one("late")
    assert [entry.id for entry in library.models()] == ["late"]
    assert library.runs() == library.models()
    shutil.rmtree(run)
    assert library.models() == []


def test_replaced_run_is_reloaded(one, tiny, tmp_path):
    run = one("run")
    library = Library([run])
    before = library.load(library.entry("run"), "step-15")
    shutil.rmtree(run)
    tokenizer = tiny.tokenizer_of("characters")
    config = tiny.config_of("gpt2", tokenizer, {"layers": 3})
    tiny.write_run(run, config, tiny.build(config), tokenizer, steps=(15,))
    (entry,) = library.models()
    assert (entry.id, entry.config.layers) == ("run", 3)
    assert library.load(entry, "step-15").config.layers == 3
    assert before.config.layers == 2


def test_rejects_damaged_checkpoint(one):
    run = one("run")
    weights = run / "checkpoints/step-15/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    library = Library([run])
    entry = library.entry("run")
    with pytest.raises(Problem, match="was altered since it was written") as problem:
        library.load(entry, "step-15")
    assert problem.value.status == 409
    assert library.load(entry, "step-5").model.config.name == "gpt2-tiny"


def test_symlink_out_of_folder_is_ignored(one, tmp_path):
    outside = tmp_path / "outside"
    shutil.move(one("run"), outside)
    (tmp_path / "runs" / "run").symlink_to(outside)
    assert Library([tmp_path / "runs"]).entries == {}
    assert list(Library([tmp_path / "runs" / "run"]).entries) == ["outside"]  # named by the user


def test_unreadable_run_is_reported_and_others_are_listed(one, tmp_path):
    one("good")
    bad = one("bad")
    (bad / "config.json").write_text("{")
    library = Library([tmp_path / "runs"])
    assert [entry.id for entry in library.models()] == ["good"]
    assert "bad" in library.problems


def test_number_of_loaded_models_is_limited(one, monkeypatch):
    monkeypatch.setattr("clearformer.explore.library.MAX_LOADED_MODELS", 1)
    library = Library([one("run")])
    entry = library.entry("run")
    first = library.load(entry, "step-5")
    assert library.load(entry, "step-5") is first
    library.load(entry, "step-15")
    assert library.load(entry, "step-5") is not first


def test_non_finite_weights_are_counted_by_layer(loaded):
    assert loaded("nan").nonfinite == {("self", 1): (3, 0)}
    assert loaded("gpt2").nonfinite == {}


def link_to(secret):
    return lambda path: path.symlink_to(secret)


PLANTED = {
    "deep": lambda path: path.write_text("[" * 100_000),
    "deep object": lambda path: path.write_text('{"a":' * 100_000),
    "digits": lambda path: path.write_text("9" * 5000),
    "empty": lambda path: path.write_text("{}"),
    "list": lambda path: path.write_text("[1, 1e999, NaN]"),
    "best": lambda path: path.write_text('{"best": {"step": 1e999}, "kind": [[]], "step": -1}'),
    "bytes": lambda path: path.write_bytes(b"\xff\x00\n" * 9),
    "pipe": os.mkfifo,
    "folder": lambda path: path.mkdir(),
    "zero": link_to("/dev/zero"),
    "link": link_to("/etc/passwd"),
    "dangling": link_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
}
FILES = [
    "config.json",
    "tokenizer.json",
    "metrics.jsonl",
    "samples.jsonl",
    "checkpoints",
    "checkpoints/step-15",
    "checkpoints/step-15/state.json",
    "checkpoints/step-15/manifest.json",
]


@pytest.mark.parametrize("name", FILES)
def test_invalid_file_of_one_run_does_not_hide_others(one, tmp_path, name):
    one("good")
    for kind, plant in PLANTED.items():
        path = one(kind.replace(" ", "-")) / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        plant(path)
    library = Library([tmp_path / "runs"])
    models = library.models()
    told = [model_info.model_info(entry) for entry in models] + [
        listed(entry) for entry in library.runs()
    ]
    assert "root:" not in json.dumps([told, library.problems], allow_nan=False)
    assert "good" in [entry.id for entry in models]
    without = name == "checkpoints"  # one kind is an empty folder, as of a run that just began
    assert len(library.problems) + len(models) == len(PLANTED) + 1 - without
    if name in ("config.json", "metrics.jsonl", "samples.jsonl"):
        for kind in ("pipe", "folder", "zero", "link", "dangling", "loop"):
            assert f"{kind}/{name} is a " in library.problems[kind]
    for entry in models:
        with suppress(Problem):  # a sentence for the page, and no traceback
            library.load(entry, library.checkpoint(entry, None))
    good = library.entry("good")
    assert library.load(good, library.checkpoint(good, None)).checkpoint == "step-15"


def test_repaired_run_is_no_longer_reported(one, tmp_path):
    run = one("run")
    (run / "samples.jsonl").unlink()
    (run / "samples.jsonl").symlink_to("/etc/passwd")
    library = Library([tmp_path / "runs"])
    assert library.models() == []
    assert "run/samples.jsonl is a symbolic link" in library.problems["run"]
    (run / "samples.jsonl").unlink()
    assert [entry.id for entry in library.models()] == ["run"]
    assert library.problems == {}


def test_names_with_invalid_unicode_are_escaped(one, tmp_path):
    run = one("run")
    os.rename(os.fsencode(run), os.fsencode(run.parent) + b"/bad\xff")
    library = Library([tmp_path / "runs"])
    (entry,) = library.models()
    assert entry.name == "bad?"
    (entry.path / "config.json").write_text('{"kind": "\\ud800"}')
    assert library.models() == []
    json.dumps(library.problems, ensure_ascii=False).encode()
