"""Model entries: identified by their files, and loaded like everywhere else."""

import json

import pytest
import torch

from clearformer.explore.library import Library, is_model
from clearformer.http_server.errors import Problem


def test_default_checkpoint_matches_other_commands(one, tmp_path):
    from clearformer.runs.load import best_checkpoint

    run = one("run")
    entry = Library([run]).entry("run")
    assert [each["id"] for each in entry.checkpoints()] == ["step-15", "step-5"]
    assert entry.default_checkpoint() == best_checkpoint(run).folder.name == "step-15"
    newest = run / "checkpoints/step-15/state.json"
    newest.write_text(json.dumps({"best": {"step": 5}}))
    assert entry.default_checkpoint() == "step-5"


@pytest.mark.parametrize("kind", ["gpt2", "bert", "llama"])
def test_opens_hugging_face_weights(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    configs = {
        "gpt2": lambda: transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=60),
        "bert": lambda: transformers.BertConfig(**small, intermediate_size=32, vocab_size=60),
        "llama": lambda: transformers.LlamaConfig(
            **small, intermediate_size=32, vocab_size=60, num_key_value_heads=1
        ),
    }
    makers = {
        "gpt2": "GPT2LMHeadModel",
        "bert": "BertForMaskedLM",
        "llama": "LlamaForCausalLM",
    }
    torch.manual_seed(0)
    theirs = getattr(transformers, makers[kind])(configs[kind]()).eval()
    folder = tmp_path / f"{kind}-small"
    theirs.save_pretrained(folder)
    assert is_model(folder)
    library = Library([tmp_path])
    (entry,) = library.models()
    assert entry.config.layers == 2
    assert entry.checkpoints() == [{"id": "weights", "step": None, "val_loss": None}]
    assert entry.tokenizer_kind is None
    found = library.load(entry, "weights").model
    assert entry.config == found.config  # reported before any data was read
    ids = torch.tensor([[5, 3, 1, 7]])
    with torch.inference_mode():
        logits = found.module(ids)
        logits = logits[0] if isinstance(logits, tuple) else logits
        torch.testing.assert_close(logits, theirs(ids).logits, rtol=0, atol=1e-4)


@pytest.fixture
def pickled(tmp_path):
    """A folder of weights whose only weights are a pickle."""
    from safetensors.torch import load_file

    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "models" / "old"
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=60)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def test_pickle_is_not_opened_by_default(pickled, monkeypatch):
    """As in `import`: without the flag it is listed with an error and advice."""
    monkeypatch.setattr("clearformer.hub.importing.PickleFile", None)  # to call it would fail
    for place in (pickled, pickled.parent):
        library = Library([place])
        assert library.models() == []
        assert (
            "is a pickle, a format that can carry code: add --allow-bin"
            in (library.problems["old"])
        )
        with pytest.raises(Problem, match="add --allow-bin") as refusal:
            library.load(library.entry("old"), "weights")
        assert refusal.value.status == 409


def test_pickle_is_opened_with_flag(pickled):
    library = Library([pickled.parent], allow_bin=True)
    (entry,) = library.models()
    assert library.problems == {}
    assert library.load(entry, "weights").config.layers == 2


def test_prefers_safetensors_to_pickle(pickled, monkeypatch):
    from safetensors.torch import save_file

    tensors = torch.load(pickled / "pytorch_model.bin", weights_only=True)
    save_file(tensors, pickled / "model.safetensors")
    monkeypatch.setattr("clearformer.hub.importing.PickleFile", None)
    library = Library([pickled])
    (entry,) = library.models()
    assert library.load(entry, "weights").config.layers == 2
