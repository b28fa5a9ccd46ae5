"""Importing a checkpoint: sharded, without a head, single files, and every kind of damage."""

import json
import os
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearformer.config import GenerationDefaults
from clearformer.hub.exporting import to_safetensors
from clearformer.hub.importing import import_checkpoint, read_model_config
from clearformer.text import Bytes, sha256


def equal(one, other):
    assert one.keys() == other.keys()
    return all(one[name].equal(other[name]) for name in one)


def test_imports_config_tokenizer_and_weights(folder, pairs):
    path, theirs = folder("gpt2")
    found = import_checkpoint(path)
    assert found.config.name == "gpt2-theirs"
    assert sha256(found.tokenizer) == sha256(pairs)
    assert found.notes == ()
    weight = theirs.transformer.h[0].attn.c_attn.weight.detach()
    assert found.tensors["stack.blocks.0.attention.project.weight"].equal(weight.T)
    assert not found.model().training


def test_hub_cache_checkpoint_is_named_after_model(folder, tmp_path):
    path, _ = folder("gpt2")
    place = tmp_path / "models--someone--tiny-gpt2/snapshots/0123456789abcdef"
    place.parent.mkdir(parents=True)
    path.rename(place)
    assert import_checkpoint(place).config.name == "gpt2-tiny-gpt2"


def test_imports_sharded_checkpoint(folder):
    path, _ = folder("llama")
    whole = import_checkpoint(path)
    sharded, _ = folder("llama", place="shards", max_shard_size="5KB")
    assert (sharded / "model.safetensors.index.json").exists()
    assert not (sharded / "model.safetensors").exists()
    assert equal(import_checkpoint(sharded).tensors, whole.tensors)


def test_imports_checkpoint_without_head_and_prefix(folder):
    """As the released GPT-2 is stored: bare names, and a causal mask among the weights."""
    path, _ = folder("gpt2")
    whole = import_checkpoint(path)
    tensors = load_file(path / "model.safetensors")
    bare = {name.removeprefix("transformer."): value.clone() for name, value in tensors.items()}
    bare["h.0.attn.bias"] = torch.ones(1, 1, 32, 32).tril()
    save_file(bare, path / "model.safetensors")
    assert equal(import_checkpoint(path).tensors, whole.tensors)


def test_imports_single_file_with_config(folder):
    path, _ = folder("gpt2")
    (path / "model.safetensors").rename(path / "other.safetensors")
    assert import_checkpoint(path / "other.safetensors").config.vocabulary == 300
    with pytest.raises(ValueError, match=r"has no weights: neither model.safetensors, nor"):
        import_checkpoint(path)


def test_pickle_files_need_allow_bin(folder):
    path, _ = folder("gpt2")
    whole = import_checkpoint(path)
    tensors = {k: v.clone() for k, v in load_file(path / "model.safetensors").items()}
    (path / "model.safetensors").unlink()
    torch.save(tensors, path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="is a pickle, a format that can carry code: add --allow-"):
        import_checkpoint(path)
    assert equal(import_checkpoint(path, allow_bin=True).tensors, whole.tensors)
    assert equal(
        import_checkpoint(path / "pytorch_model.bin", allow_bin=True).tensors, whole.tensors
    )


def test_pickle_with_safetensors_name_runs_no_code(folder, tmp_path):
    marker = tmp_path / "marker"

    class Payload:
        def __reduce__(self):
            return os.system, (f"touch {marker}",)

    path, _ = folder("gpt2")
    torch.save({"a": Payload()}, path / "model.safetensors")
    with pytest.raises(ValueError, match="is not a valid safetensors file"):
        import_checkpoint(path)
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="contains more than weights"):
        import_checkpoint(path, allow_bin=True)
    assert not marker.exists()


def test_code_files_in_checkpoint_are_not_run(folder, tmp_path):
    path, _ = folder("gpt2")
    marker = tmp_path / "marker"
    for name in ("modeling_gpt2.py", "tokenization.py", "__init__.py", "conftest.py"):
        (path / name).write_text(f"open({str(marker)!r}, 'w')")
    import_checkpoint(path)
    assert not marker.exists()


def test_unknown_config_keys_are_ignored_and_reported(folder, edit):
    path, _ = folder("llama")
    plain = import_checkpoint(path)
    silent = {"torch_dtype": "float32", "use_cache": False, "_name_or_path": "x", "id2label": {}}
    edit(path / "config.json", **silent)
    assert import_checkpoint(path).notes == ()
    edit(path / "config.json", eos_token_ids=[1, 2])
    assert import_checkpoint(path).notes == (
        "ignored, a setting that this kind of model does not have: eos_token_ids",
    )
    edit(path / "config.json", neftune_alpha=5, lora={"r": 8}, **{"a\nb": 1})
    found = import_checkpoint(path)
    assert found.notes == (
        "ignored, settings that this kind of model does not have: eos_token_ids, neftune_alpha, "
        "lora and 1 more",
    )
    assert found.config == plain.config
    assert equal(found.tensors, plain.tensors)


@pytest.mark.parametrize("name", ["gpt2", "bert-masked", "qwen2"])
def test_imports_config_without_model_type(folder, edit, name):
    path, _ = folder(name)
    whole = import_checkpoint(path)
    edit(path / "config.json", model_type=None)
    found = import_checkpoint(path)
    assert found.config == whole.config
    assert equal(found.tensors, whole.tensors)
    assert "has no model_type; it was read as" in found.notes[0]
    assert read_model_config(path) == whole.config


def test_imports_old_bert_tensor_names(folder):
    """BERT of 2018: gamma and beta, and numbers of positions among the weights."""
    path, _ = folder("bert")
    whole = import_checkpoint(path)
    old = {}
    for name, value in load_file(path / "model.safetensors").items():
        if "LayerNorm" in name:
            name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        old[name] = value.clone()
    old["bert.embeddings.position_ids"] = torch.arange(32)[None]
    save_file(old, path / "model.safetensors")
    assert equal(import_checkpoint(path).tensors, whole.tensors)


# --- what is wrong -------------------------------------------------------------------------


def test_rejects_missing_path_and_other_files(tmp_path):
    with pytest.raises(ValueError, match="there is no folder or file"):
        import_checkpoint(tmp_path / "nothing")
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(ValueError, match=r"x.txt is not a file of weights"):
        import_checkpoint(tmp_path / "x.txt")


def test_rejects_missing_or_invalid_config(folder):
    path, _ = folder("gpt2")
    (path / "config.json").unlink()
    with pytest.raises(ValueError, match=r"has no config.json, which says what the weights mean"):
        import_checkpoint(path)
    for text, sentence in (
        ("{", "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ('"x"', "is not a JSON object"),
    ):
        (path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=sentence):
            import_checkpoint(path)


def test_rejects_unsupported_model_type(folder, edit):
    path, _ = folder("gpt2")
    edit(path / "config.json", model_type="t5")
    with pytest.raises(ValueError, match=r"config.json is of a model_type 't5', which clearformer"):
        import_checkpoint(path)
    edit(path / "config.json", model_type="bert")
    with pytest.raises(
        ValueError, match=r"vocab_size|hidden_size|max_position_embeddings|architect"
    ):
        import_checkpoint(path)


def test_rejects_run_folder(folder):
    path, _ = folder("gpt2")
    (path / "config.json").write_text(json.dumps({"kind": "RunConfig"}))
    with pytest.raises(ValueError, match="is a run of clearformer already"):
        import_checkpoint(path)
    (path / "model.safetensors").unlink()  # they are one folder further down
    (path / "checkpoints").mkdir()
    with pytest.raises(ValueError, match="is a run of clearformer already"):
        import_checkpoint(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_embd", 10**9), ("n_embd", 10**5), ("n_layer", 10**6), ("vocab_size", 2**31)],
)
def test_rejects_huge_config_before_building_model(folder, edit, name, value, monkeypatch):
    from clearformer.hub import convert

    def nothing(config):
        raise AssertionError("a model was made")

    monkeypatch.setattr(convert, "outline", nothing)
    path, _ = folder("gpt2")
    edit(path / "config.json", **{name: value})
    with pytest.raises(
        ValueError, match=f"{name} is {value}, but it must be a whole number from 1"
    ):
        import_checkpoint(path)


def test_rejects_inconsistent_config_values(folder, edit):
    path, _ = folder("gpt2")
    edit(path / "config.json", n_head=3)
    with pytest.raises(ValueError, match="width is 16 and heads is 3, but the heads must divide"):
        import_checkpoint(path)
    edit(path / "config.json", n_head=4, n_embd=20)
    with pytest.raises(ValueError, match=r"has shape .*, but its config makes it"):
        import_checkpoint(path)


def test_rejects_tokenizer_of_other_size(folder, edit, theirs, pairs):
    from clearformer.hub.tokenizer_files import write_tokenizer

    path, _ = folder("gpt2")
    theirs("gpt2", vocabulary=310).save_pretrained(path)
    with pytest.raises(ValueError, match="its tokenizer has 300 tokens, but its embedding 310"):
        import_checkpoint(path)
    write_tokenizer(pairs, path, 32)
    (path / "tokenizer.json").unlink()
    assert import_checkpoint(path).tokenizer is None


def test_tokenizer_may_be_given_separately(folder, tmp_path):
    path, _ = folder("gpt2")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(ValueError, match="elsewhere has no tokenizer"):
        import_checkpoint(path, tokenizer=str(elsewhere))
    shutil.move(path / "tokenizer.json", elsewhere)
    assert import_checkpoint(path, tokenizer=str(elsewhere)).tokenizer.size == 300
    with pytest.raises(ValueError, match="its tokenizer has 256 tokens, but its embedding 300"):
        import_checkpoint(path, tokenizer="bytes")


# --- our own one file ----------------------------------------------------------------------


@pytest.fixture
def own(small, scrambled, tmp_path):
    from clearformer.builder import build

    config = small("generator", vocabulary=256)
    model = scrambled(build(config)).eval()
    to_safetensors(model, config, GenerationDefaults(), Bytes(), tmp_path / "own.safetensors")
    return tmp_path / "own.safetensors", model, config


def test_imports_clearformer_safetensors_file(own):
    path, model, config = own
    found = import_checkpoint(path)
    assert found.config == config
    assert equal(found.tensors, {n: p.detach() for n, p in model.named_parameters()})


def test_clearformer_file_keeps_start_and_end_tokens(small, tmp_path):
    from clearformer.builder import build
    from clearformer.hub.safetensors_files import SafetensorsFile

    generation = GenerationDefaults(start_id=257, end_ids=(256,), max_tokens=9)
    config = small("original", vocabulary=258)
    path = tmp_path / "own.safetensors"
    model = build(config)
    to_safetensors(model, config, generation, Bytes(), path)
    assert import_checkpoint(path).generation == generation
    # Earlier versions had them in the model.
    about = json.loads(SafetensorsFile(path).metadata["clearformer"])
    del about["generation"]
    about["model"]["marks"] = {"kind": "Marks", "start": 257, "end": 256}
    about["model"]["rules"] = {"kind": "TargetRules", "never": [257], "most": 9}
    tensors = {n: p.detach().clone() for n, p in model.named_parameters()}
    save_file(tensors, path, metadata={"clearformer": json.dumps(about)})
    found = import_checkpoint(path)
    assert found.config == config
    assert found.generation == replace(generation, banned_ids=(257,))


def test_clearformer_file_is_validated(own, tmp_path):
    path, model, _ = own
    tensors = {n: p.detach().clone() for n, p in model.named_parameters()}
    from clearformer.hub.safetensors_files import SafetensorsFile

    about = json.loads(SafetensorsFile(path).metadata["clearformer"])

    def save(tensors, **changes):
        changed = {**about, "model": {**about["model"], **changes}}
        save_file(tensors, path, metadata={"clearformer": json.dumps(changed)})

    save(tensors, width=2**30)
    with pytest.raises(ValueError, match="width is 1073741824, but it must be between 1 and 65536"):
        import_checkpoint(path)
    save(tensors, hidden=25)
    with pytest.raises(
        ValueError, match=r"its tensors do not match its config: see stack.blocks.0.feed"
    ):
        import_checkpoint(path)
    save({**tensors, "extra": torch.ones(1)})
    with pytest.raises(ValueError, match="its tensors do not match its config: see extra"):
        import_checkpoint(path)
    save(tensors, vocabulary=257)
    with pytest.raises(ValueError, match="its tensors do not match its config"):
        import_checkpoint(path)
    save_file(tensors, path, metadata={"clearformer": "{}"})
    with pytest.raises(ValueError, match="has invalid metadata"):
        import_checkpoint(path)
    for other in ("[]", "5", "null"):
        save_file(tensors, path, metadata={"clearformer": other})
        with pytest.raises(ValueError, match="has invalid metadata: they are not a JSON object"):
            import_checkpoint(path)
