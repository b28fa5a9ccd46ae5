"""What every verb respects: --json where it prints figures, NO_COLOR, pipes and COLUMNS."""

import contextlib
import io
import json
import re
import sys
from dataclasses import replace

import pytest

import clearformer as cf
from clearformer.cli import main as main_module
from clearformer.config import (
    AnswerSpan,
    Classifier,
    MultiLabelClassifier,
    Regressor,
    TokenClassifier,
)
from clearformer.families import bert, modern
from clearformer.text import train as train_tokenizer

TEXT = "mary lives in rome . "
SMALL = {"length": 24, "layers": 1, "width": 16, "heads": 2, "hidden": 32}
HEADS = {
    "masked": None,
    "classes": Classifier(classes=2, names=("no", "yes"), pool="first"),
    "labels": MultiLabelClassifier(classes=2, names=("no", "yes"), pool="first"),
    "number": Regressor(pool="first", mean=10.0, std=2.0),
    "words": TokenClassifier(classes=2, names=("O", "B-PER")),
    "spans": AnswerSpan(),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a small model of every kind, with random weights."""
    folder = tmp_path_factory.mktemp("models")
    words = train_tokenizer("wordpiece", [TEXT * 3], 100)
    for name, head in HEADS.items():
        config = replace(bert("tiny"), vocabulary=words.size, **SMALL)
        config = config if head is None else replace(config, head=head)
        cf.Model(cf.build(config), config, words).save(folder / name)
    plain = train_tokenizer("bytes", (), None)
    config = replace(modern("tiny"), vocabulary=256, **SMALL)
    cf.Model(cf.build(config), config, plain).save(folder / "writer")
    (folder / "a.csv").write_text("text,label\n" + "".join(f"t {i},c{i % 2}\n" for i in range(40)))
    (folder / "a.txt").write_text(TEXT * 50)
    (folder / "small.txt").write_text(TEXT)
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("clearformer.plan.throughput.SECONDS", 0.05)
    monkeypatch.setattr("clearformer.plan.summary.QUICK_SECONDS", 0.05)


# Every verb that prints figures; {} is the folder of the models, {run} a trained generator.
FIGURES = {
    "evaluate": "evaluate {run} --max-bytes 200",
    "plan": "plan modern-tiny --minutes 1 --data {}/a.txt",
    "plan-gpus": "plan gpt2-small --gpus 8",
    "data": "data",
    "data-table": "data {}/a.csv",
    "data-text": "data {}/a.txt",
    "runs": "runs {run}",
    "compare": "compare {run} {run}",
    "classify": "classify {}/classes mary",
    "labels": "classify {}/labels mary",
    "predict": "predict {}/number mary",
    "label": "label {}/words mary",
    "answer": "answer {}/spans who --context mary",
    "fill": "fill {}/masked [MASK]",
    "embed": "embed {}/masked mary",
    "generate": "generate {}/writer ab --max-tokens 3",
    "attend": "attend mary",
    "attend-model": "attend mary --model {}/masked --shuffle",
    "describe": "describe",
    "describe-model": "describe gpt2-xl",
    "describe-for": "describe --for classify,1minute",
    "reach": "reach causal --length 8",
    "compress": "compress {}/small.txt --model {}/writer --out {out}.cf",
    "ablate": "ablate {}/writer abc",
    "patch": "patch {}/writer abc abd --right a",
    "verify": "verify {}/writer --only future-leak",
}
MORE = {"train", "translate", "decompress", "selftest"}  # tested with their own files
WITHOUT = {  # they print no figures
    "average", "chat", "completion", "explore", "export", "import", "learn", "merge",
    "serve", "tensorboard",
}  # fmt: skip


def words_of(line, models, run, tmp_path):
    places = {"run": run, "out": tmp_path / "out"}
    return line.replace("{}", str(models)).format(**places).split()


def test_every_verb_is_in_one_of_the_lists():
    listed = {line.split()[0] for line in FIGURES.values()} | MORE | WITHOUT
    assert listed == set(main_module.VERBS)


@pytest.mark.parametrize("name", FIGURES)
def test_json_is_all_that_stdout_has(name, models, run, clearformer, tmp_path):
    words = words_of(FIGURES[name], models, run, tmp_path)
    done = clearformer(*words, "--json")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines
    for line in lines:
        assert isinstance(json.loads(line), dict), line


@pytest.mark.parametrize("verb", sorted({line.split()[0] for line in FIGURES.values()} | MORE))
def test_the_help_offers_json(verb, clearformer):
    shown = clearformer(verb, "--help-all" if verb == "train" else "--help").out
    assert "--json" in shown


class FakeTerminal(io.StringIO):
    """A terminal that remembers what was written."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize("name", FIGURES)
def test_no_escape_codes_in_a_pipe(name, models, run, clearformer, tmp_path, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    done = clearformer(*words_of(FIGURES[name], models, run, tmp_path))
    assert done.code == 0, done.err
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("name", FIGURES)
def test_no_colour_in_a_terminal_that_wants_none(
    name, models, run, clearformer, tmp_path, monkeypatch
):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    words = words_of(FIGURES[name], models, run, tmp_path)
    if name == "generate":
        words += ["--show-probabilities"]
    screen = FakeTerminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    with contextlib.suppress(SystemExit):
        main_module.main(words)
    colours = re.findall(r"\x1b\[([0-9;]*)m", screen.getvalue())
    assert not [each for each in colours if re.search(r"(^|;)(3[0-8]|4[0-8]|9\d|10\d)", each)]


WRAPPED = {
    **{f"help {verb}": f"{verb} --help" for verb in sorted(main_module.VERBS)},
    "overview": "--help",
    "attend": "attend mary_gave_roses",
    "attend-words": "attend mary --model {}/masked",
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_text_keeps_to_60_columns(name, models, clearformer, tmp_path, monkeypatch):
    words = words_of(WRAPPED[name], models, "", tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    code = 0
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    try:
        main_module.main(words)
    except SystemExit as leaving:
        code = leaving.code or 0
    assert code == 0
    long = [line for line in screen.getvalue().splitlines() if len(line) > 60 and " " in line]
    assert not long
