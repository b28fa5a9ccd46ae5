"""Converting checkpoint tensors: every name and shape is checked before any data is read."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearformer.hub.importing import import_checkpoint

NORM = "transformer.h.1.ln_1.weight"


@pytest.fixture
def damaged(folder):
    """A GPT-2 with changed tensors; None removes one."""

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


def test_rejects_missing_tensor(damaged):
    path = damaged(**{NORM: None})
    with pytest.raises(ValueError, match=f"it lacks the tensor {NORM}$"):
        import_checkpoint(path)


def test_rejects_many_missing_tensors_with_count(damaged):
    gone = {f"transformer.h.0.ln_{i}.{kind}": None for i in (1, 2) for kind in ("weight", "bias")}
    with pytest.raises(ValueError, match=r"lacks the tensors .* and 1 more$"):
        import_checkpoint(damaged(**gone))


def test_rejects_wrong_shape_naming_both_shapes(damaged):
    path = damaged(**{NORM: torch.ones(17)})
    with pytest.raises(ValueError, match=rf"{NORM} has shape \(17,\), but its config .*\(16,\)"):
        import_checkpoint(path)


@pytest.mark.parametrize("name", ["transformer.h.0.adapter.weight", "transformer.h.2.ln_1.weight"])
def test_rejects_unexpected_tensor(damaged, name):
    with pytest.raises(ValueError, match=f"it has the tensor {name}, which its config does"):
        import_checkpoint(damaged(**{name: torch.ones(16)}))


def test_reports_unused_head(damaged):
    path = damaged("bert-masked", **{"bert.pooler.dense.weight": torch.ones(16, 16)})
    assert import_checkpoint(path).notes == ("not used: bert.pooler.dense.weight",)


def test_ignores_buffers(damaged):
    path = damaged(**{"transformer.h.0.attn.bias": torch.ones(1, 1, 32, 32, dtype=torch.bool)})
    assert import_checkpoint(path).notes == ()


def test_tied_weights_stay_tied(damaged, folder):
    _, theirs = folder("gpt2")
    same = theirs.transformer.wte.weight.detach().clone()
    model = import_checkpoint(damaged(**{"lm_head.weight": same})).model()
    assert model.head.project.weight is model.embedding.token.weight
    with pytest.raises(ValueError, match=r"are one tensor by its config, but they differ"):
        import_checkpoint(damaged(**{"lm_head.weight": same + 1}))


def test_bert_decoder_bias_is_same_as_predictions_bias(damaged, folder):
    _, theirs = folder("bert")
    bias = theirs.cls.predictions.bias.detach().clone()
    both = {"cls.predictions.decoder.bias": bias}
    assert import_checkpoint(damaged("bert", **both)).notes == ()
    alone = {**both, "cls.predictions.bias": None}
    assert (
        import_checkpoint(damaged("bert", **alone)).tensors["head.masked.project.bias"].equal(bias)
    )


EIGHT_BITS = [
    torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz,
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, *EIGHT_BITS])
def test_other_float_dtypes_become_float32(damaged, dtype):
    weights = torch.randn(16).to(dtype)
    found = import_checkpoint(damaged(**{NORM: weights}))
    assert found.tensors["stack.blocks.1.attention_norm.weight"].equal(weights.float())
    name = str(dtype).removeprefix("torch.")
    assert any(name in note and "are now float32" in note for note in found.notes)


NO_FLOATS = [
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32,
    torch.uint64, torch.bool, torch.complex64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", NO_FLOATS)
def test_rejects_non_float_weights(damaged, dtype):
    with pytest.raises(ValueError, match=f"{NORM} is of {dtype}, but weights are floating-point"):
        import_checkpoint(damaged(**{NORM: torch.ones(16).to(dtype)}))


Q, K, V = (f"model.layers.0.self_attn.{each}_proj.weight" for each in "qkv")


def test_file_may_mix_dtypes(damaged):
    """Three matrices of three types that are one of ours, and two names of one weight."""
    parts = {
        Q: torch.randn(16, 16).to(torch.float8_e4m3fn),
        K: torch.randn(8, 16, dtype=torch.float64),
        V: torch.randn(8, 16).to(torch.bfloat16),
    }
    found = import_checkpoint(damaged("llama", **parts))
    joined = found.tensors["stack.blocks.0.attention.project.weight"]
    assert joined.equal(torch.cat([part.float() for part in parts.values()]))
    assert found.notes == (
        "weights of bfloat16, float64, float8_e4m3fn are now float32; 128 of them were rounded",
    )
    path = damaged()
    table = load_file(path / "model.safetensors")["transformer.wte.weight"]
    again = import_checkpoint(damaged(**{"lm_head.weight": table.double()}))
    assert again.model().head.project.weight.equal(table)


def test_float64_exact_in_float32_is_not_reported_as_rounded(damaged):
    found = import_checkpoint(damaged(**{NORM: torch.full((16,), 0.5, dtype=torch.float64)}))
    assert found.notes == ("weights of float64 are now float32",)


def test_rejects_quantization_scales(damaged):
    """Without its scales, a quantized weight is another number."""
    eight = torch.randn(16, 16).to(torch.float8_e4m3fn)
    path = damaged("llama", **{Q: eight, f"{Q}_scale": torch.ones(1)})
    with pytest.raises(ValueError, match=r"it has the tensor .*q_proj.weight_scale, which its"):
        import_checkpoint(path)


def test_reports_number_of_non_finite_weights(damaged):
    weights = torch.ones(16)
    weights[3], weights[5] = float("nan"), float("inf")
    assert (
        "2 weights are not finite: the checkpoint is damaged"
        in import_checkpoint(damaged(**{NORM: weights})).notes
    )


def test_matching_layout_is_memory_mapped_without_copy(folder):
    """Views of the file, shared by both readings of it through the same pages."""
    path, _ = folder("gpt2")
    found = import_checkpoint(path)
    table = found.tensors["embedding.token.weight"]
    assert found.model().embedding.token.weight.data_ptr() == table.data_ptr()
    assert table.untyped_storage().nbytes() <= table.numel() * 4


def test_rejects_empty_tensor_of_huge_shape(folder):
    path, _ = folder("gpt2")
    file = path / "model.safetensors"
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    end = len(data)
    header["lm_head.weight"] = {"dtype": "F32", "shape": [0, 2**60], "data_offsets": [end, end]}
    written = json.dumps(header).encode()
    file.write_bytes(len(written).to_bytes(8, "little") + written + data)
    with pytest.raises(
        ValueError, match=r"lm_head.weight and .* are one tensor .* but they differ"
    ):
        import_checkpoint(path)
