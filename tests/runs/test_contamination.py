"""Detecting evaluation data that a model was trained on, by content alone."""

import json
from dataclasses import replace

import pytest

from clearformer.config import (
    Classifier,
    DataConfig,
    Masking,
    Origin,
    RunConfig,
    TrainConfig,
)
from clearformer.data import DataFolders, open_text, read_table
from clearformer.families import generator, preset
from clearformer.runs import contamination, finetune
from clearformer.runs.load import best_checkpoint, open_run
from clearformer.runs.run import Run
from clearformer.tasks.registry import task_of

SIZES = {"length": 16, "layers": 1, "width": 16, "heads": 2, "hidden": 32}
TRAIN = TrainConfig(learning_rate=1e-2, batch_size=4, steps=2, evaluations=1, threads=1)


def text(first, last):
    return "\n".join(
        f"line {i} of a text in which no line is like another" for i in range(first, last)
    )


@pytest.fixture
def places(tmp_path):
    return DataFolders(cache=tmp_path / "cache")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(text(0, 1000))
    return path


def trained(config, folder, places):
    list(Run(config, folder, places, say=lambda sentence: None).events())
    return folder


@pytest.fixture
def run(tmp_path, source, places):
    model = replace(generator(), **SIZES)
    config = RunConfig(model=model, data=DataConfig(source=str(source)), train=TRAIN)
    return trained(config, tmp_path / "run", places)


def material(config, places):
    return task_of(config.model).training_material(config, places)


def told(run, evaluated, places, held_back=False):
    opened = open_run(run)
    known = contamination.lineage(opened.checkpoint, opened.config)
    return contamination.notes(known, evaluated, places, held_back=held_back)


def written(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    return open_text(str(tmp_path / name))


def test_reports_training_text(run, source, places):
    (sentence,) = told(run, open_text(str(source)), places)
    assert sentence == (
        "this run was trained on 90 % of this text; evaluate its validation part "
        "instead: leave out --data and --part"
    )


def test_reports_copy_without_original(run, source, tmp_path, places):
    copy = written(tmp_path, "copy.txt", source.read_text() + text(2000, 2100))
    source.unlink()
    assert "trained on 82 % of this text" in told(run, copy, places)[0]
    # Only the beginning of it is evaluated, as with --max-bytes.
    assert "trained on all of this text" in told(run, copy.part(0, 1000), places)[0]


def test_reports_share_of_partial_overlap(run, source, tmp_path, places):
    middle = written(tmp_path, "middle.txt", text(300, 500))
    assert "trained on about all of this text" in told(run, middle, places)[0]
    half = written(tmp_path, "half.txt", text(300, 500) + "\n" + text(3000, 3200))
    share = int(told(run, half, places)[0].split("about ")[1].split(" %")[0])
    assert 35 < share < 65
    source.unlink()
    assert told(run, middle, places) == [], "nobody can know"


def test_new_text_gives_no_note(run, tmp_path, places):
    assert told(run, written(tmp_path, "new.txt", text(2000, 2500)), places) == []


def test_changed_training_data_is_not_compared(run, source, tmp_path, places):
    source.write_text(text(5000, 6000))
    assert told(run, written(tmp_path, "new.txt", text(5000, 5100)), places) == []


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    rows = [f"a film number {i},{'good' if i % 2 else 'bad'}" for i in range(40)]
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def classifier(tmp_path, table, places):
    model = replace(preset("classifier"), **SIZES, head=Classifier(pool="mean"))
    data = DataConfig(source=str(table), tokenizer="words", vocabulary=60)
    return trained(RunConfig(model=model, data=data, train=TRAIN), tmp_path / "c", places)


def test_counts_contaminated_rows(classifier, table, tmp_path, places):
    whole = read_table(table)
    assert "trained on 36 of these 40 texts" in told(classifier, whole.texts, places)[0]
    learned = material(open_run(classifier).config, places)
    held = [row for row in whole.texts if row not in learned]
    assert len(held) == 4
    assert told(classifier, tuple(held), places) == []
    assert "all of these 1 texts" in told(
        classifier, (next(row for row in whole.texts if row not in held),), places
    )[0]  # fmt: skip


def test_includes_data_of_pretrained_run(run, source, tmp_path, places):
    """A model that is fine-tuned on another text was still trained on the first."""
    other = tmp_path / "other.txt"
    other.write_text(text(7000, 8000))
    found = finetune.read_origin(run)
    config = RunConfig(
        model=open_run(run).config.model,
        data=DataConfig(source=str(other)),
        train=TRAIN,
        origin=found.origin,
    )
    second = trained(config, tmp_path / "second", places)
    assert told(second, open_text(str(source)), places) == [
        f"this run was fine-tuned from {run}, which was trained on 90 % of this text"
    ]
    # What the second held back, the first may have learned.
    third = replace(config, data=DataConfig(source=str(source), validation_fraction=0.5))
    third = trained(third, tmp_path / "third", places)
    held = open_text(str(source)).part(30_000, 40_000)
    sentences = told(third, held, places, held_back=True)
    assert sentences == [
        f"this run was fine-tuned from {run}, which was trained on about all of this text"
    ]
    # It is recorded: neither the first run nor its text has to be there.
    for path in (run / "checkpoints").iterdir():
        path.rename(tmp_path / f"moved {path.name}")
    copy = written(tmp_path, "copy.txt", source.read_text())
    source.unlink()
    assert "90 % of this text" in told(second, copy, places)[0]


def test_old_run_is_checked_by_its_settings(run, source, places):
    found = best_checkpoint(run)
    manifest = {
        k: v
        for k, v in found.manifest.items()
        if k not in (contamination.TRAINED, contamination.BEGAN)
    }
    old = replace(found, manifest=manifest)
    config = open_run(run).config
    (sentence,) = contamination.notes(
        contamination.lineage(old, config), open_text(str(source)), places, held_back=False
    )
    assert "trained on about" in sentence
    began = replace(config, origin=Origin(folder=str(run), sha256="0"))
    assert [each.run for each in contamination.lineage(old, began)] == [None, str(run)]
    gone = replace(config, origin=Origin(folder="/nowhere", sha256="0"))
    assert [each.run for each in contamination.lineage(old, gone)] == [None]


@pytest.mark.parametrize(
    "hostile",
    [
        {contamination.TRAINED: 3, contamination.BEGAN: 3},
        {
            contamination.TRAINED: {"size": "x", "sha256": 3},
            contamination.BEGAN: [None, {}, {"config": []}, "x"],
        },
        {contamination.TRAINED: {"size": -5, "sha256": "x"}},
        {contamination.TRAINED: {"size": 10**30, "sha256": "x"}},
    ],
)
def test_tolerates_hostile_manifest(run, source, places, hostile):
    found = best_checkpoint(run)
    found = replace(found, manifest={**found.manifest, **hostile})
    known = contamination.lineage(found, open_run(run).config)
    contamination.notes(known, open_text(str(source)), places, held_back=False)
    json.dumps([each.to_json() for each in known])


@pytest.mark.parametrize("name", ["-", "/dev/zero", "/nowhere/x.txt", "a.txt,b.txt", ""])
def test_unreadable_sources_are_skipped(run, name, tmp_path, places):
    config = open_run(run).config
    config = replace(config, data=replace(config.data, source=name))
    new = written(tmp_path, "new.txt", text(0, 50))
    assert (
        contamination.notes([contamination.Training(None, config)], new, places, held_back=False)
        == []
    )


def test_does_not_download(run, tmp_path, places, monkeypatch):
    def never(*arguments):
        raise AssertionError("a download")

    monkeypatch.setattr("clearformer.data.corpus_files.fetch", never)
    config = open_run(run).config
    config = replace(config, data=replace(config.data, source="enwik8"))
    new = written(tmp_path, "new.txt", text(0, 50))
    known = [contamination.Training(None, config)]
    assert (
        contamination.notes(known, new, DataFolders(cache=tmp_path / "cache"), held_back=False)
        == []
    )


def test_imported_checkpoint_has_no_lineage(run):
    found = replace(best_checkpoint(run), step=0)
    assert contamination.lineage(found, open_run(run).config) == []


def test_training_texts_of_every_task(tmp_path, table, places):
    masked = replace(preset("bert-tiny-masked"), length=16)
    data = DataConfig(source=str(table), tokenizer="wordpiece", masking=Masking())
    config = RunConfig(model=masked, data=data, train=TRAIN)
    assert len(material(config, places)) == 36
    (tmp_path / "p.tsv").write_text("".join(f"one {i}\teins {i}\n" for i in range(40)))
    data = DataConfig(source=str(tmp_path / "p.tsv"), tokenizer="bytes")
    config = RunConfig(model=preset("original-tiny"), data=data, train=TRAIN)
    found = material(config, places)
    assert len(found) == 36
    assert found[0].startswith("one")
    assert "\teins" in found[0]
