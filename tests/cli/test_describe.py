"""`clearformer describe`: published counts, shapes and memory, without building the model."""

import json
import os
import re
from functools import cache

import pytest

from clearformer import builder
from clearformer.config import RunConfig, to_json
from clearformer.families import preset, presets
from clearformer.families.recipes import recipe
from clearformer.kernels import guides

counted = cache(guides.count_pairs)


@pytest.fixture(autouse=True)
def counted_once(monkeypatch):
    """Counting the cells of a long pattern takes seconds, and presets share patterns."""
    monkeypatch.setattr(guides, "count_pairs", counted)


@pytest.mark.parametrize("name", presets())
def test_describes_every_preset(clearformer, name):
    outcome = clearformer("describe", name)
    assert outcome.code == 0
    assert outcome.out.startswith(name)
    assert "pattern, " in outcome.out


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("gpt2-small", "total                  124,439,808"),
        ("gpt2-xl", "total                1,557,611,200"),
        ("bert-base", "encoder + pooler       109,482,240"),
        ("bert-large", "encoder + pooler       335,141,888"),
    ],
)
def test_prints_published_parameter_counts(clearformer, name, line):
    assert line in clearformer("describe", name).out


def test_parts_add_up_to_the_total(clearformer):
    text = clearformer("describe", "original-base").out
    section = text.split("parameters by part")[1].split("memory")[0]
    *parts, total = [int(n.replace(",", "")) for n in re.findall(r" +([\d,]{2,}|0)\n", section)]
    assert sum(parts) == total > 0


def test_tied_matrices_are_named(clearformer):
    assert "(the same as embedding.token)" in clearformer("describe", "gpt2").out
    assert "the same as" not in clearformer("describe", "generator").out


def test_attention_memory_matches_source_document(clearformer):
    """16 tables of 1024 x 1024 in float32: 64 MB; 4 for each of 12 heads and layers."""
    text = clearformer("describe", "gpt2-small", "--batch", "16").out
    assert "a batch of 16: 64.0 MiB" in text
    assert "36.0 GiB   4 (before and after softmax, and their gradients) × 12 heads × 12" in text
    # The seed: at most twelve 4-head layers of such tables in 12 GB.
    four_heads_twelve_layers = 4 * 4 * 12 * 64e6
    assert four_heads_twelve_layers == pytest.approx(12e9, rel=0.03)


def test_allocates_no_weights(clearformer, monkeypatch):
    made = []
    outline = builder.outline
    monkeypatch.setattr(builder, "outline", lambda config: made.append(outline(config)) or made[-1])
    clearformer("describe", "gpt2-xl")
    assert {p.device.type for model in made for p in model.parameters()} == {"meta"}


def test_draws_patterns(clearformer, tmp_path):
    picture = tmp_path / "pattern.svg"
    text = clearformer("describe", "sparse-strided", "--picture", str(picture)).out
    assert "pattern, layers 0, 2, …: Causal & Local(128)" in text
    assert "pattern, layers 1, 3, …: Causal & Strided(128)" in text
    assert "<svg" in picture.read_text()


def test_lists_presets_without_argument(clearformer):
    text = clearformer("describe").out
    assert [line.split()[0] for line in text.splitlines()] == presets()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("gpt2-smal",), "there is no model 'gpt2-smal': did you mean 'gpt2-small'?"),
        (("bret",), "there is no model 'bret': did you mean 'bert'?"),
        (("gpt2", "--batch", "0"), "batch is 0, but it must be at least 1"),
    ],
)
def test_rejects_invalid_input(clearformer, arguments, complaint):
    assert clearformer("describe", *arguments).complaint == complaint


def test_describes_run_by_its_config(clearformer, tmp_path):
    model = preset("modern-tiny")
    data, train = recipe(model)
    config = to_json(RunConfig(model=model, data=data, train=train))
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert clearformer("describe", str(tmp_path)).out == clearformer("describe", "modern-tiny").out
    (tmp_path / "config.json").unlink()
    assert "is not a run: it has no config.json" in clearformer("describe", str(tmp_path)).complaint


def test_rejects_invalid_config(clearformer, tmp_path):
    path = tmp_path / "config.json"
    for text, complaint in (
        ("[" * 100_000, "config.json is not valid JSON: maximum recursion"),
        ("{}", "config.json is not a config of a run: "),
    ):
        path.write_text(text)
        assert complaint in clearformer("describe", str(tmp_path)).complaint
    path.unlink()
    os.mkfifo(path)
    assert "config.json is a named pipe, but" in clearformer("describe", str(tmp_path)).complaint


def test_unknown_name_lists_presets(clearformer):
    assert "known: classifier, generator" in clearformer("describe", "zzzzzz").complaint
