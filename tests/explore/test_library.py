"""Models are found, named and opened; nothing outside the given folders is."""

import shutil

import pytest

from clearformer.explore.errors import Problem
from clearformer.explore.library import Library, slug


def test_a_run_gets_an_id_that_is_no_path(one, tmp_path):
    for name in ("<img src=x onerror=alert(1)>", "a b", "a_.._b"):
        one(name)
    library = Library([tmp_path / "runs"])
    assert sorted(library.entries) == ["a-b", "a_-_b", "img-src-x-onerror-alert-1"]
    assert slug("../../etc/passwd") == "etc-passwd"
    for id in ("../../etc/passwd", "a b", "..", ""):
        with pytest.raises(Problem) as problem:
            library.entry(id)
        assert problem.value.status == 404


def test_models_that_come_and_go_are_noticed(one, tmp_path):
    (tmp_path / "runs").mkdir()
    library = Library([tmp_path / "runs"])
    assert library.models() == []
    run = one("late")
    assert [entry.id for entry in library.models()] == ["late"]
    assert library.runs() == library.models()
    shutil.rmtree(run)
    assert library.models() == []


def test_another_run_in_the_same_folder_is_another_model(one, tiny, tmp_path):
    run = one("run")
    library = Library([run])
    before = library.open(library.entry("run"), "step-15")
    shutil.rmtree(run)
    tokenizer = tiny.tokenizer_of("characters")
    config = tiny.config_of("gpt2", tokenizer, {"layers": 3})
    tiny.write_run(run, config, tiny.build(config), tokenizer, steps=(15,))
    (entry,) = library.models()
    assert (entry.id, entry.config.layers) == ("run", 3)
    assert library.open(entry, "step-15").config.layers == 3
    assert before.config.layers == 2


def test_a_damaged_checkpoint_is_refused_before_a_number_is_used(one):
    run = one("run")
    weights = run / "checkpoints/step-15/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    library = Library([run])
    entry = library.entry("run")
    with pytest.raises(Problem, match="was altered since it was written") as problem:
        library.open(entry, "step-15")
    assert problem.value.status == 409
    assert library.open(entry, "step-5").subject.config.name == "gpt2-tiny"


def test_a_link_does_not_lead_out_of_the_folder(one, tmp_path):
    outside = tmp_path / "outside"
    shutil.move(one("run"), outside)
    (tmp_path / "runs" / "run").symlink_to(outside)
    assert Library([tmp_path / "runs"]).entries == {}
    assert list(Library([tmp_path / "runs" / "run"]).entries) == ["outside"]  # named by the user


def test_what_cannot_be_read_is_told_and_does_not_hide_the_others(one, tmp_path):
    one("good")
    bad = one("bad")
    (bad / "config.json").write_text("{")
    library = Library([tmp_path / "runs"])
    assert [entry.id for entry in library.models()] == ["good"]
    assert "bad" in library.problems


def test_few_models_are_open_at_a_time(one, monkeypatch):
    monkeypatch.setattr("clearformer.explore.library.OPEN_MODELS", 1)
    library = Library([one("run")])
    entry = library.entry("run")
    first = library.open(entry, "step-5")
    assert library.open(entry, "step-5") is first
    library.open(entry, "step-15")
    assert library.open(entry, "step-5") is not first


def test_nan_among_the_weights_is_counted_by_layer(opened):
    assert opened("nan").not_finite == {("self", 1): (3, 0)}
    assert opened("gpt2").not_finite == {}
