import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import clearformer as cf
from clearformer.hub.peft_export import to_peft
from clearformer.hub.peft_import import import_peft
from clearformer.runs.load import open_any

EVERY = {
    "gpt2": ("all", "q,v,o", "qkv,up,down"),
    "llama": ("all", "qkv,gate", "k,down"),
    "bert": ("all", "qkv", "down"),
    "marian": ("all", "v,o,up"),
}
CASES = [(kind, targets) for kind, several in EVERY.items() for targets in several]


@pytest.fixture(scope="module")
def bases(pm, tmp_path_factory):
    return {kind: pm.base_run(kind, tmp_path_factory.mktemp(kind)) for kind in EVERY}


@pytest.mark.parametrize("kind_of_adapter", [cf.LoRA, cf.DoRA])
@pytest.mark.parametrize(("kind", "targets"), CASES)
def test_peft_computes_the_same_logits(
    pm, adapter_run, bases, kind, targets, kind_of_adapter, tmp_path
):
    adapter = kind_of_adapter(rank=3, alpha=5.0, targets=targets, rank_stabilized=True)
    run = adapter_run(bases[kind], tmp_path / "run", adapter)
    expected = pm.ours(open_any(run).model)
    exported = to_peft(run, tmp_path / "peft")
    assert exported.difference < 1e-5
    theirs = pm.opened_by_peft(kind, tmp_path / "peft")
    assert (pm.logits(theirs) - expected).abs().max() < 1e-5
    assert (pm.logits(pm.theirs(kind)) - expected).abs().max() > 1e-3
    names = {name for name, _ in theirs.named_parameters() if "lora_" in name}
    assert len(names) == len(load_file(tmp_path / "peft" / "adapter_model.safetensors"))


def test_rotary_pairs_of_neighbours_change_the_order_of_rows(adapter_run, bases, tmp_path):
    config = cf.config.ModelConfig(**vars(open_any(bases["llama"]).config.model))
    config = replace(config, position=replace(config.position, pairs="neighbours"))
    base = cf.Model(cf.build(config), config, open_any(bases["llama"]).tokenizer)
    base.save(tmp_path / "base")
    run = adapter_run(tmp_path / "base", tmp_path / "run", cf.DoRA(rank=2))
    assert to_peft(run, tmp_path / "peft").difference < 1e-5
    again = import_peft(tmp_path / "peft", tmp_path / "base").tensors
    for name, tensor in open_any(run).checkpoint.tensors("adapter.safetensors").items():
        assert torch.equal(again[name], tensor), name


def test_the_config_names_what_peft_needs(adapter_run, bases, tmp_path):
    run = adapter_run(bases["gpt2"], tmp_path / "run", cf.LoRA(rank=2, alpha=4.0, targets="q,v"))
    cf.load(run).export(tmp_path / "peft", to="peft")
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    name = "transformer.h.0.attn.c_attn"
    assert config["fan_in_fan_out"]
    assert config["task_type"] == "CAUSAL_LM"
    assert config["rank_pattern"][name] == 4
    assert config["alpha_pattern"][name] == 8.0


def test_a_run_without_an_adapter_is_refused(bases, tmp_path):
    with pytest.raises(ValueError, match="has no adapter: use --to huggingface"):
        cf.load(bases["gpt2"]).export(tmp_path / "peft", to="peft")
