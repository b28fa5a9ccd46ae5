"""Fine-tuning translators, whole and with adapters: what is kept, resumed, merged and refused."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import clearformer as cf
from clearformer.builder import build
from clearformer.config import (
    Constant,
    DataConfig,
    GenerationDefaults,
    RunConfig,
    TrainConfig,
)
from clearformer.data import DataFolders
from clearformer.generate.beam import Beam
from clearformer.hub.write_run import default_run_config
from clearformer.runs import checkpoint
from clearformer.runs.load import open_any, open_translator
from clearformer.runs.run import Run
from clearformer.runs.start import finetune_config
from clearformer.text import Bytes

TRAIN = TrainConfig(
    learning_rate=1e-2, batch_size=16, steps=4, evaluations=2, threads=1, precision="float32",
    schedule=Constant(), label_smoothing=0.1,
)  # fmt: skip


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Words and the same words twice, in the letters that the base knows."""
    folder = tmp_path_factory.mktemp("pairs")
    words = [f"{a}{b}{c}" for a in "abc" for b in "abcdef" for c in "ab"]
    (folder / "pairs.tsv").write_text(
        "source\ttarget\n" + "".join(f"{word}\t{word}{word}\n" for word in words)
    )
    return folder / "pairs.tsv"


@pytest.fixture(scope="module")
def marian(small, scrambled, tmp_path_factory):
    """A run with the start and end tokens of an imported translator: inside the vocabulary."""
    config = small("original", vocabulary=256, length=24, residual="post", embedding_norm=None)
    generation = GenerationDefaults(
        start_id=255, end_ids=(3,), banned_ids=(255,), force_end=True, max_tokens=20
    )
    torch.manual_seed(3)
    model = cf.Model(
        scrambled(build(config)).eval(),
        config,
        Bytes(),
        run_config=default_run_config(config, generation, Bytes()),
    )
    folder = tmp_path_factory.mktemp("marian") / "run"
    model.save(folder)
    return folder


def config_of(base, pairs, **train):
    config = finetune_config(base)
    return replace(
        config,
        data=replace(config.data, source=str(pairs)),
        train=replace(TRAIN, **train),
    )


def finished(config, folder, **more):
    run = Run(config, folder, DataFolders(cache=folder.parent / "cache"), **more)
    list(run.events())
    return run


def test_tokenizer_weights_and_end_tokens_are_those_of_the_base(
    trained_translator, pairs, tmp_path
):
    before = open_any(trained_translator)
    run = Run(
        config_of(trained_translator, pairs),
        tmp_path / "run",
        DataFolders(cache=tmp_path / "cache"),
    )
    assert run.task.tokenizer.to_json() == before.tokenizer.to_json()
    assert run.config.model == before.config.model
    assert run.config.generation.target_ids == before.config.generation.target_ids
    old = before.model.state_dict()
    assert all(value.equal(old[name]) for name, value in run.model.state_dict().items())
    list(run.events())
    assert not all(value.equal(old[name]) for name, value in run.model.state_dict().items())
    assert open_translator(tmp_path / "run").translator.translate(["abc"], Beam(width=1))


def test_start_and_end_tokens_may_be_inside_the_vocabulary(marian, pairs, tmp_path):
    """As in imported translators, whose vocabulary is not the tokenizer's and two more."""
    run = finished(config_of(marian, pairs), tmp_path / "run")
    kept = run.config.generation
    assert (kept.start_id, kept.end_ids, kept.banned_ids) == (255, (3,), (255,))
    assert (kept.force_end, kept.max_tokens) == (True, 20)
    assert run.config.model.vocabulary == 256
    batch = run.task.batch(0)
    assert batch.target[:, 0].eq(255).all()
    assert batch.targets.eq(3).sum(1).eq(1).all()
    resumed = Run(run.config, tmp_path / "run", DataFolders(cache=tmp_path / "cache"), resume=True)
    assert resumed.config.generation == kept


@pytest.mark.parametrize("kind", [cf.LoRA, cf.DoRA])
@pytest.mark.parametrize("base", [None, "bfloat16", "int8"])
def test_an_adapter_opens_as_it_was_trained(marian, pairs, tmp_path, kind, base):
    before = open_any(marian).model
    run = finished(config_of(marian, pairs, adapter=kind(rank=2, base=base)), tmp_path / "run")
    source, target = torch.randint(0, 255, (2, 2, 7))
    with torch.no_grad():
        expected = run.model.eval()(source, target)
        found = open_any(tmp_path / "run").model(source, target)
        assert (found - expected).abs().max() < 1e-4
        assert (before(source, target) - found).abs().max() > 1e-3
    names = load_file(tmp_path / "run/checkpoints/step-4/adapter.safetensors")
    assert all(".parts." in name or ".magnitude." in name for name in names)
    assert any("cross_attention" in name for name in names)
    assert not (tmp_path / "run/checkpoints/step-4/model.safetensors").exists()


@pytest.mark.parametrize("adapter", [None, cf.DoRA(rank=2, base="int8")])
def test_resumed_equals_uninterrupted(trained_translator, pairs, tmp_path, adapter):
    config = config_of(trained_translator, pairs, adapter=adapter)
    finished(config, tmp_path / "whole")
    run = Run(config, tmp_path / "part", DataFolders(cache=tmp_path / "cache"))
    list(run.events(lambda: run.state.step >= 3))
    torch.rand(3)
    finished(config, tmp_path / "part", resume=True)
    file = "model.safetensors" if adapter is None else "adapter.safetensors"
    one, other = (
        checkpoint.newest(tmp_path / name / "checkpoints", print).tensors(file)
        for name in ("whole", "part")
    )
    assert one.keys() == other.keys()
    assert all(value.equal(other[name]) for name, value in one.items())


def test_python_trains_merges_and_evaluates(trained_translator, tmp_path):
    rows = [{"source": a + b, "target": b + a} for a in "abcdef" for b in "abc"]
    model = cf.train(
        from_=trained_translator, data=rows, out=tmp_path / "run", adapter="lora", rank=2, steps=2,
        quiet=True,
    )  # fmt: skip
    assert model.run_config.train.adapter == cf.LoRA(rank=2)
    merged = cf.merge(tmp_path / "run", tmp_path / "merged")
    texts = ["abc", "fa"]
    assert cf.load(tmp_path / "merged").translate(texts) == model.translate(texts)
    assert merged.run_config.origin is None
    assert model.evaluate().metrics.keys() == {"loss", "bleu", "bleu_lowercase", "chrf", "exact"}


def test_serve_translates_with_an_adapter(marian, adapter_run, tmp_path):
    from clearformer.serve.server import open_models

    runs = {
        "lora": adapter_run(marian, tmp_path / "lora", cf.LoRA(rank=2, alpha=4.0)),
        "dora": adapter_run(marian, tmp_path / "dora", cf.DoRA(rank=2, alpha=4.0), seed=2),
    }
    served = open_models([marian], adapters=runs)
    first = served[marian.name].module
    texts = ["abc", "fade", "a bee"]
    found = {name: model.translate(texts, max_tokens=8) for name, model in served.items()}
    for name, run in runs.items():
        cross = served[name].module.decoder.blocks[0].cross_attention
        assert cross.project.base is first.decoder.blocks[0].cross_attention.project
        assert found[name] == cf.load(run).translate(texts, max_tokens=8)
    assert len({tuple(each) for each in found.values()}) == 3


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("classify", "is a translator, which can only be trained further on pairs: for a classif"),
        ("answer", "trained further on pairs: for a model for extractive question answering use"),
        ("chat", "is a translator: it can translate, not generate"),
    ],
)
def test_other_tasks_are_refused(trained_translator, name, sentence):
    with pytest.raises(ValueError, match=sentence):
        finetune_config(trained_translator, name)


def test_pairs_that_do_not_fit_are_refused(trained_translator, pairs, tmp_path):
    config = config_of(trained_translator, pairs)
    with pytest.raises(ValueError, match=r"model.layers is 2, but .* has 1: with --from only the"):
        finished(replace(config, model=config.model.with_layers(2)), tmp_path / "deeper")
    long = tmp_path / "long.tsv"
    long.write_text(
        "source\ttarget\n" + "".join(f"{letter}{'abc' * 8}\t{letter}\n" for letter in "abcdefgh")
    )
    data = replace(config.data, source=str(long))
    with pytest.raises(ValueError, match="each of its 7 pairs has more than 16 tokens on a side"):
        finished(replace(config, data=data), tmp_path / "long")
    rank = replace(TRAIN, adapter=cf.LoRA(rank=17))
    with pytest.raises(
        ValueError, match=r"the adapter's rank is 17, but .* choose a rank of at mo"
    ):
        finished(replace(config, train=rank), tmp_path / "rank")
    data = DataConfig(source=str(pairs), tokenizer="bytes")
    with pytest.raises(ValueError, match="comes with its tokenizer, characters with"):
        finished(replace(config, data=data), tmp_path / "tokenizer")
    assert isinstance(config, RunConfig)
