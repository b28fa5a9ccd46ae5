"""From their tensors to ours: every name and shape is checked before a number is read."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearformer.hub.importing import read

NORM = "transformer.h.1.ln_1.weight"


@pytest.fixture
def damaged(folder):
    """A GPT-2 with changed tensors; None takes one away."""

    def write(name="gpt2", **changes):
        path, _ = folder(name)
        tensors = load_file(path / "model.safetensors")
        tensors = {key: value.clone() for key, value in tensors.items()}
        for key, value in changes.items():
            key = key.replace("__", ".")
            tensors.pop(key, None)
            if value is not None:
                tensors[key] = value
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return path

    return write


def test_a_missing_tensor_is_named(damaged):
    path = damaged(**{NORM: None})
    with pytest.raises(ValueError, match=f"it lacks the tensor {NORM}$"):
        read(path)


def test_many_missing_tensors_are_counted(damaged):
    gone = {f"transformer.h.0.ln_{i}.{kind}": None for i in (1, 2) for kind in ("weight", "bias")}
    with pytest.raises(ValueError, match=r"lacks the tensors .* and 1 more$"):
        read(damaged(**gone))


def test_a_wrong_shape_is_named_with_both(damaged):
    path = damaged(**{NORM: torch.ones(17)})
    with pytest.raises(
        ValueError, match=rf"{NORM} has shape \(17,\), but its config.json .*\(16,\)"
    ):
        read(path)


@pytest.mark.parametrize("name", ["transformer.h.0.adapter.weight", "transformer.h.2.ln_1.weight"])
def test_a_tensor_that_nothing_accounts_for_is_refused(damaged, name):
    with pytest.raises(ValueError, match=f"it has the tensor {name}, which its config.json does"):
        read(damaged(**{name: torch.ones(16)}))


def test_a_head_that_is_not_used_is_reported(damaged):
    path = damaged("bert-masked", **{"bert.pooler.dense.weight": torch.ones(16, 16)})
    assert read(path).notes == ("not used: bert.pooler.dense.weight",)


def test_buffers_are_no_weights(damaged):
    path = damaged(**{"transformer.h.0.attn.bias": torch.ones(1, 1, 32, 32, dtype=torch.bool)})
    assert read(path).notes == ()


def test_tied_weights_stay_tied(damaged, folder):
    _, theirs = folder("gpt2")
    same = theirs.transformer.wte.weight.detach().clone()
    model = read(damaged(**{"lm_head.weight": same})).model()
    assert model.head.project.weight is model.embedding.token.weight
    with pytest.raises(ValueError, match=r"are one tensor by its config.json, but they differ"):
        read(damaged(**{"lm_head.weight": same + 1}))


def test_berts_second_bias_is_the_first(damaged, folder):
    _, theirs = folder("bert")
    bias = theirs.cls.predictions.bias.detach().clone()
    both = {"cls.predictions.decoder.bias": bias}
    assert read(damaged("bert", **both)).notes == ()
    alone = {**both, "cls.predictions.bias": None}
    assert read(damaged("bert", **alone)).tensors["head.masked.project.bias"].equal(bias)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_floats_become_float32(damaged, dtype):
    weights = torch.randn(16).to(dtype)
    found = read(damaged(**{NORM: weights}))
    assert found.tensors["stack.blocks.1.attention_norm.weight"].equal(weights.float())
    name = str(dtype).removeprefix("torch.")
    assert any(name in note and "are now float32" in note for note in found.notes)


def test_whole_numbers_are_no_weights(damaged):
    with pytest.raises(ValueError, match=f"{NORM} is of torch.int8, but weights are"):
        read(damaged(**{NORM: torch.ones(16, dtype=torch.int8)}))


def test_what_is_not_finite_is_counted(damaged):
    weights = torch.ones(16)
    weights[3], weights[5] = float("nan"), float("inf")
    assert (
        "2 weights are not finite: the checkpoint is damaged"
        in read(damaged(**{NORM: weights})).notes
    )


def test_what_lies_as_ours_does_is_not_copied(folder):
    """Views of the file, shared by both readings of it through the same pages."""
    path, _ = folder("gpt2")
    found = read(path)
    table = found.tensors["embedding.token.weight"]
    assert found.model().embedding.token.weight.data_ptr() == table.data_ptr()
    assert table.untyped_storage().nbytes() <= table.numel() * 4


def test_an_empty_tensor_of_an_absurd_shape_is_refused_by_its_shape(folder):
    path, _ = folder("gpt2")
    file = path / "model.safetensors"
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    end = len(data)
    header["lm_head.weight"] = {"dtype": "F32", "shape": [0, 2**70], "data_offsets": [end, end]}
    written = json.dumps(header).encode()
    file.write_bytes(len(written).to_bytes(8, "little") + written + data)
    with pytest.raises(
        ValueError, match=r"lm_head.weight and .* are one tensor .* but they differ"
    ):
        read(path)
