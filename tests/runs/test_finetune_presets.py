"""Every preset and every task: what `train --from` can do, with an adapter and without.

Presets that are the same model once their sizes are tiny are tried once.
"""

import json
import re
from dataclasses import replace

import pytest
import torch

import clearformer as cf
from clearformer.builder import build
from clearformer.config import (
    Classifier,
    Constant,
    Dropout,
    GenerationDefaults,
    HiddenMemory,
    Seq2SeqConfig,
    TrainConfig,
)
from clearformer.data import DataFolders
from clearformer.families import preset, presets
from clearformer.hub.write_run import default_run_config
from clearformer.runs.load import open_any
from clearformer.runs.run import Run
from clearformer.runs.start import ADAPTED, finetune_config
from clearformer.text import Bytes, train

TRAIN = TrainConfig(
    learning_rate=1e-2, batch_size=4, steps=1, evaluations=1, threads=1, precision="float32",
    schedule=Constant(),
)  # fmt: skip
WORDS = "the cat sat on the mat, and the dog sat on the log. it is a fine day"
ADAPTERS = {"lora": cf.LoRA(rank=2), "dora": cf.DoRA(rank=1)}
# Tasks (None: the same one again) that a kind of model has no place for, and what it says.
TRANSLATOR = "is a translator"
REFUSED = {
    "translate": dict.fromkeys(ADAPTED, TRANSLATOR),
    "fill": {"chat": "is a masked model: it can fill and embed, not generate"},
    "classify": {"chat": "is a classifier: it can classify and embed, not generate"},
    "memory": {"chat": "is a Transformer-XL, whose memory would mix conversations"},
}


def tiny(name):
    """A preset with tiny sizes, and nothing else changed."""
    config = preset(name)
    changes = {"length": 64, "layers": 1, "width": 16, "heads": 2, "hidden": 16, "name": "tiny"}
    changes["vocabulary"] = 258 if isinstance(config, Seq2SeqConfig) else 256
    changes["dropout"] = Dropout(token=config.dropout.token)
    if config.key_heads is not None:
        changes["key_heads"] = 1 if config.key_heads < config.heads else 2
    if isinstance(config, Seq2SeqConfig):
        changes["decoder_layers"] = 1
    if config.memory is not None:
        changes["cache"] = HiddenMemory(length=8)
    if config.neighbours is not None:
        changes["neighbours"] = replace(config.neighbours, buckets=64)
    if config.ngrams is not None:
        changes["ngrams"] = replace(config.ngrams, buckets=64)
    if isinstance(config.head, Classifier):
        changes["head"] = replace(config.head, classes=2, names=("no", "yes"))
    return replace(config, **changes)


MODELS = {}  # of each tiny model: the first preset
for each in presets():
    MODELS.setdefault(tiny(each), each)
NAMES = {name: config for config, name in MODELS.items()}


def test_every_preset_has_its_tiny_model():
    assert {tiny(name) for name in presets()} == set(NAMES.values())
    assert len(NAMES) < len(presets())


@pytest.fixture(scope="module")
def base(scrambled, tmp_path_factory):
    """The run of a tiny model with drawn weights."""
    folder, pieces = tmp_path_factory.mktemp("bases"), train("wordpiece", [WORDS], 256)

    def run(name):
        if not (folder / name).exists():
            config = NAMES[name]
            writes = "generate" in config.verbs or "translate" in config.verbs
            tokenizer = Bytes() if writes else pieces
            marks = {"start_id": 257, "end_ids": (256,)} if "translate" in config.verbs else {}
            generation = GenerationDefaults(**marks)
            if not writes:
                config = replace(config, vocabulary=pieces.size)
            run_config = default_run_config(config, generation, tokenizer)
            model = cf.Model(scrambled(build(config)), config, tokenizer, run_config=run_config)
            model.save(folder / name)
        return folder / name

    return run


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A file of each kind that a task learns from."""
    folder = tmp_path_factory.mktemp("data")
    texts = [f"{word} {number}" for number in range(6) for word in ("fine", "bad", "odd")]
    rows = [{"text": t, "second": "day", "label": "yn"[i % 2]} for i, t in enumerate(texts)]
    files = {
        "generate": ("a.txt", (WORDS + "\n") * 24),
        "fill": ("b.txt", (WORDS + ".\n\n") * 24),
        "classify": ("rows.jsonl", lines(rows)),
        "multi-label": ("labels.jsonl", lines(r | {"label": [r["label"]]} for r in rows)),
        "regression": ("numbers.jsonl", lines(r | {"label": i} for i, r in enumerate(rows))),
        "label": (
            "words.jsonl",
            lines({"tokens": t.split(), "labels": ["A", "B"]} for t in texts),
        ),
        "answer": (
            "questions.jsonl",
            lines({"question": "a?", "context": t, "answer": t.split()[0]} for t in texts),
        ),
        "chat": ("chat.jsonl", lines({"prompt": t, "response": "yes"} for t in texts)),
        "translate": ("pairs.jsonl", lines({"source": t, "target": t[::-1]} for t in texts)),
    }
    for name, text in files.values():
        (folder / name).write_text(text)
    found = {task: str(folder / name) for task, (name, _) in files.items()}
    return found | {"classify-pairs": found["classify"]}


def configured(base, task, data, adapter):
    config = finetune_config(base, task)
    source = data[task or config.model.verbs[0]]
    data_config = replace(config.data, source=source, validation_fraction=0.3)
    return replace(config, data=data_config, train=replace(TRAIN, adapter=adapter))


CASES = [
    (name, task, list(ADAPTERS)[(i + j) % 2])
    for i, name in enumerate(NAMES)
    for j, task in enumerate((None, *ADAPTED))
]


@pytest.mark.parametrize(("name", "task", "adapter"), CASES)
def test_with_an_adapter(name, task, adapter, base, data, tmp_path):
    config = NAMES[name]
    kind = "memory" if config.memory is not None else config.verbs[0]
    refused = REFUSED.get(kind, {}).get(task)
    if refused is not None:
        with pytest.raises(ValueError, match=re.escape(refused)):
            configured(base(name), task, data, None)
        return
    before = open_any(base(name)).model.state_dict()
    asked = configured(base(name), task, data, ADAPTERS[adapter])
    run = Run(asked, tmp_path / "run", DataFolders(cache=tmp_path / "cache"))
    list(run.events())
    opened = open_any(tmp_path / "run")
    assert task not in ("classify", "label", "answer") or opened.config.model.verbs[0] == task
    after = opened.model.state_dict()
    body = {name for name in after if name.startswith(("stack.", "encoder.", "decoder."))}
    assert body <= before.keys()
    changed = {name for name in body if not torch.equal(after[name], before[name])}
    assert changed
    assert all(re.search(r"\.(project|output|up|down)\.weight$", name) for name in changed)


@pytest.mark.parametrize("name", NAMES)
def test_whole(name, base, data, tmp_path):
    before = open_any(base(name)).model.state_dict()
    run = Run(
        configured(base(name), None, data, None),
        tmp_path / "run",
        DataFolders(cache=tmp_path / "cache"),
    )
    list(run.events())
    after = open_any(tmp_path / "run").model.state_dict()
    assert after.keys() == before.keys()
    assert any(not torch.equal(value, before[name]) for name, value in after.items())


def test_evidence_of_other_classes_is_saved_with_an_adapter(base, data, tmp_path):
    run = Run(
        configured(base("classifier-ngrams"), "multi-label", data, ADAPTERS["lora"]),
        tmp_path / "run",
        DataFolders(cache=tmp_path / "cache"),
    )
    counted = run.model.ngrams.evidence.clone()
    list(run.events())
    ngrams = open_any(tmp_path / "run").model.ngrams
    assert counted.any()
    assert torch.equal(ngrams.evidence, counted)
    assert not ngrams.evidence.requires_grad
    assert ngrams.weight.requires_grad
    assert ngrams.weight.abs().sum() > 0
