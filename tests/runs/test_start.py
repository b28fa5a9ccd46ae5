"""Initial configs: from a preset, a run, or a model to fine-tune; and absolute paths."""

from clearformer.config import DataConfig, to_json
from clearformer.families import preset
from clearformer.runs.start import (
    finetune_config,
    preset_config,
    saved_config,
    with_absolute_paths,
)


def test_preset_config_includes_recipe():
    config = preset_config("modern-tiny")
    assert config.model == preset("modern-tiny")
    assert config.origin is None


def test_saved_config_and_finetune_config(whole, config):
    folder, _ = whole
    assert saved_config(folder).train == config.train
    assert saved_config(folder.parent / "none") is None
    again = finetune_config(folder)
    assert again.model == saved_config(folder).model
    assert again.origin.folder == str(folder)
    for name, kind in (
        ("classify", "Classifier"),
        ("classify-pairs", "PairClassifier"),
        ("label", "TokenClassifier"),
        ("answer", "AnswerSpan"),
    ):
        found = finetune_config(folder, name)
        assert to_json(found.model.head)["kind"] == kind
        assert found.train.epochs == 3


def test_file_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).touch()
    for source, wanted in (
        ("a.txt", str(tmp_path / "a.txt")),
        ("*.txt", str(tmp_path / "*.txt")),
        ("a.txt,b.txt", f"{tmp_path / 'a.txt'},{tmp_path / 'b.txt'}"),
        ("enwik8", "enwik8"),
        ("-", "-"),
        ("", ""),
        ("none.txt", "none.txt"),
    ):
        assert with_absolute_paths(DataConfig(source=source)).source == wanted
    held_back = with_absolute_paths(DataConfig(source="-", validation="b.txt"))
    assert held_back.validation == str(tmp_path / "b.txt")
