"""Flags and commands as people type them first."""

import pytest

from clearformer.cli.main import parse
from clearformer.cli.usual_spellings import usual_spellings


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("train --data a --max-steps 3", "train --data a --steps 3"),
        ("train --num-epochs=3 --output x", "train --epochs=3 --out x"),
        ("train --num_train_epochs 3 -o x", "train --epochs 3 --out x"),
        ("train --dataset a --bs 4", "train --data a --batch-size 4"),
        ("train --preset gpt2-small --lr 1", "train gpt2-small --lr 1"),
        ("generate r --prompt hi --temp 1", "generate r hi --temperature 1"),
        ("generate --prompt hi --model r", "generate r hi"),
        ("generate r --stop a --prompt hi", "generate r hi --stop a"),
        ("generate r hi --max-new-tokens 5", "generate r hi --max-tokens 5"),
        ("classify r --input a.csv --output b.csv", "classify r --file a.csv --out b.csv"),
        ("evaluate r --compare q --json", "evaluate r q --json"),
        ("evaluate r --dataset a --split test", "evaluate r --data a --part test"),
        ("train --steps 3 --max-steps 4", "train --steps 3 --max-steps 4"),  # then it is refused
        ("attend abc", "attend abc"),
        (
            "train --log wandb --steps 3 --log=tensorboard",
            "train --log wandb tensorboard --steps 3",
        ),
        ("train --log wandb tensorboard", "train --log wandb tensorboard"),
        ("train --log=wandb --log.samples 2", "train --log=wandb --log.samples 2"),
        ("generate r hi --stop a b --seed 1 --stop c", "generate r hi --stop a b c --seed 1"),
        ("generate r hi --stop=a= --stop --banned x", "generate r hi --stop a= --banned x"),
    ],
)
def test_flags_of_other_tools(typed, ours):
    assert usual_spellings(typed.split()) == ours.split()
    assert usual_spellings(()) == []


def test_they_reach_the_settings():
    words = "train --data a.txt --learning-rate 0.1 --batch-size 2 --max-steps 3 --seed 4"
    command = parse([*words.split(), "--output", "x", "--n-layers", "2"])
    assert command.train.learning_rate == 0.1
    assert (command.train.batch_size, command.train.steps, command.train.seed) == (2, 3, 4)
    assert (command.model.layers, str(command.out)) == (2, "x")


def test_a_repeated_flag_keeps_all_its_values():
    assert parse(["train", "--log", "wandb", "--log", "tensorboard"]).logs == (
        "wandb",
        "tensorboard",
    )
    assert parse(["generate", "r", "hi", "--stop", "a", "--stop", "b"]).stop == ("a", "b")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("tarin", "there is no command 'tarin': did you mean 'train'? See clearformer --help"),
        ("Train", "there is no command 'Train': did you mean 'train'? See clearformer --help"),
        ("eval x", "there is no command 'eval': did you mean 'evaluate'? See clearformer --help"),
        ("predcit x", "there is no command 'predcit': did you mean 'predict'?"),
        ("clasify x", "there is no command 'clasify': did you mean 'classify'?"),
        ("xyzzy", "there is no command 'xyzzy': clearformer --help lists them"),
        (
            "train --lerning-rate 1",
            "train has no flag --lerning-rate: did you mean --learning-rate",
        ),
        ("train --max-setps 1", "train has no flag --max-setps: did you mean --steps?"),
        ("train --num-epoch 1", "train has no flag --num-epoch: did you mean --epochs?"),
        ("train --bacth-size 1", "train has no flag --bacth-size: did you mean --batch-size?"),
        ("train --dtaa 1", "train has no flag --dtaa: did you mean --data?"),
        ("train --claas-weights x", "train has no flag --claas-weights: did you mean --class-wei"),
        ("classify r --outt y", "classify has no flag --outt: did you mean --out?"),
        ("classify r --delimeter y", "classify has no flag --delimeter: did you mean --delimiter?"),
        (
            "generate r --max-token 3",
            "generate has no flag --max-token: did you mean --max-tokens?",
        ),
        ("generate r --tempature 3", "generate has no flag --tempature: did you mean --temperatur"),
        ("evaluate r --worst-frist", "evaluate has no flag --worst-frist: did you mean --worst-fi"),
        ("evaluate r --run-folder x", "evaluate has no flag --run-folder: see clearformer evaluat"),
        ("train --config nowhere.json", "there is no nowhere.json: give the config.json of a run"),
        ("train modern-tiny --config x", "--config has the settings of a whole run: leave out"),
        ("runs nowhere", "there is no folder nowhere: name the one with your runs"),
    ],
)
def test_typos(clearformer, words, sentence):
    assert clearformer(*words.split()).complaint.startswith(sentence)


def test_a_file_or_folder_without_its_flag(tmp_path, monkeypatch, clearformer):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.txt").write_text("text")
    (tmp_path / "my.csv").write_text("text,label\n")
    assert parse(["train", "my.txt", "--steps", "2"]).data.source == "my.txt"
    assert parse(["train", "gpt2-small", "my.txt", "--steps", "2"]).data.source == "my.txt"
    command = parse(["train", "my.csv", "--text", "message", "--no-normalize-labels"])
    assert (command.preset, command.data.source) == ("classifier-small", "my.csv")
    assert command.data.text_column == "message"
    assert command.data.table.normalize_labels is False
    said = clearformer("my.txt").complaint
    assert "there is no command 'my.txt', but there is such a file or folder: clearformer" in said


def test_help_shows_the_usual_settings_first(clearformer, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    said = clearformer("train", "classifier-pairs", "--help").out
    for flag in ("--data", "--text", "--minutes", "--epochs", "--learning-rate", "--out"):
        assert f"  {flag}" in said
    assert "--model.biases" not in said
    assert max(map(len, said.splitlines())) <= 60
    assert "\x1b" not in said
    every = clearformer("train", "classifier-pairs", "--help-all").out
    assert "--model.biases" in every
    assert "--data.table.encoding" in every
    assert clearformer("help", "train").out == clearformer("train", "--help").out
    assert clearformer("help").out == clearformer("--help").out
