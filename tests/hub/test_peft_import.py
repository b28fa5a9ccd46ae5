import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import clearformer as cf
from clearformer.hub.peft_import import import_peft
from clearformer.runs.load import open_any

KINDS = ("gpt2", "llama", "qwen2", "bert", "marian")
OPTIONS = {
    "lora": {},
    "dora": {"use_dora": True},
    "rslora": {"use_rslora": True},
    "every matrix": {
        "target_modules": r".*\.(h|layers|encoder)\..*(c_\w+|_proj|query|key|value|dense)"
    },
    "one layer": {"layers_to_transform": [1]},
}


@pytest.fixture(scope="module")
def bases(pm, tmp_path_factory):
    return {kind: pm.base_run(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


@pytest.fixture
def ours(pm):
    return pm.ours


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_those_of_peft(kind, options, pm, ours, bases, tmp_path):
    reference = pm.saved_adapter(kind, tmp_path / "peft", **OPTIONS[options])
    found = import_peft(tmp_path / "peft", bases[kind])
    expected = pm.logits(reference)
    assert (pm.logits(pm.theirs(kind)) - expected).abs().max() > 1e-3
    assert (ours(found.model()) - expected).abs().max() < 1e-5
    model = open_any(found.write(tmp_path / "run")).model
    assert (ours(model) - expected).abs().max() < 1e-5


def test_modules_may_have_ranks_and_scales_of_their_own(pm, ours, bases, tmp_path):
    settings = {"rank_pattern": {"q_proj": 5}, "alpha_pattern": {"0.self_attn.v_proj": 9}}
    reference = pm.saved_adapter("llama", tmp_path / "peft", **settings)
    found = import_peft(tmp_path / "peft", bases["llama"])
    assert (ours(found.model()) - pm.logits(reference)).abs().max() < 1e-5
    assert found.config.train.adapter.rank == 5


def test_a_head_that_was_saved_too_replaces_that_of_the_model(pm, ours, bases, tmp_path):
    settings = {"modules_to_save": ["classifier"], "task_type": "SEQ_CLS"}
    reference = pm.saved_adapter("bert", tmp_path / "peft", **settings)
    found = import_peft(tmp_path / "peft", bases["bert"])
    assert (ours(found.model()) - pm.logits(reference)).abs().max() < 1e-5
    model = cf.load(found.write(tmp_path / "run"))
    assert (ours(model.module) - pm.logits(reference)).abs().max() < 1e-5


def test_load_opens_an_adapter_with_its_base(pm, ours, bases, tmp_path):
    reference = pm.saved_adapter("llama", tmp_path / "peft")
    model = cf.load(tmp_path / "peft", base=bases["llama"])
    assert (ours(model.module) - pm.logits(reference)).abs().max() < 1e-5
    with pytest.raises(ValueError, match="give the run of that model as `base`"):
        cf.load(tmp_path / "peft")
    with pytest.raises(ValueError, match="is not an adapter: leave `base` out"):
        cf.load(bases["llama"], base=bases["llama"])


# --- adapters that cannot be read ------------------------------------------------------------


@pytest.fixture(scope="module")
def good(pm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("good") / "peft"
    pm.saved_adapter("llama", folder)
    return folder


def changed(good, tmp_path, settings=None, tensors=None):
    folder = tmp_path / "changed"
    shutil.copytree(good, folder)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | (settings or {})))
    if tensors is not None:
        path = folder / "adapter_model.safetensors"
        save_file(tensors(load_file(path)), path)
    return folder


FIRST = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3', but clearformer reads LORA"),
        ({"bias": "all"}, "bias is 'all', but clearformer's adapters leave biases"),
        ({"use_qalora": True}, "use_qalora is True, which clearformer does not support"),
        ({"lora_bias": True}, "lora_bias is True, which clearformer does not support"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens is .1., which clearformer"),
        ({"layer_replication": [[0, 1]]}, "layer_replication is .*, which clearformer does not"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices is .*, which clearformer"),
        ({"a_new_option": 3}, "a_new_option is 3, which clearformer does not support"),
        ({"init_lora_weights": "pissa"}, "is 'pissa', which changes the weights of the model"),
        ({"r": 0}, "r is 0, but it must be a whole number from 1 to 65,536"),
        ({"r": 10**9}, "r is 1000000000, but it must be a whole number"),
        ({"r": 4}, r"q_proj.lora_A.weight has shape \(3, 16\), but the model and a rank of 4"),
        ({"lora_alpha": -1}, "lora_alpha is -1, but it must be a number above 0"),
        ({"lora_dropout": 2}, "lora_dropout is 2, but it must be a number from 0 to 1"),
        ({"rank_pattern": {"(a+)+$": 3}}, "rank_pattern is .* reads an object of plain names"),
        ({"alpha_pattern": {"q_proj": "x"}}, "alpha_pattern is .*values must be numbers above 0"),
        ({"use_dora": True}, "it lacks the tensor .*q_proj.lora_magnitude_vector"),
    ],
)
def test_settings_that_are_not_understood_are_refused(settings, sentence, good, bases, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        import_peft(changed(good, tmp_path, settings), bases["llama"])


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        (lambda t: t | {FIRST: t[FIRST] * float("nan")}, "has NaN or infinity: get it again"),
        (lambda t: t | {FIRST: torch.zeros(3, 7)}, r"has shape \(3, 7\), but the model and"),
        (lambda t: t | {FIRST: t[FIRST].int()}, "torch.int32, but weights are floating-point"),
        (lambda t: {n: v for n, v in t.items() if n != FIRST}, "it lacks the tensor .*lora_A"),
        (lambda t: t | {"base_model.model.x": torch.zeros(1)}, "for which the model in .* no pl"),
        (lambda t: {"a.b": torch.zeros(1)}, "for which the model in"),
        (lambda t: {}, "it has no lora_A and lora_B of any matrix"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tensors, sentence, good, bases, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        import_peft(changed(good, tmp_path, tensors=tensors), bases["llama"])


def test_an_adapter_of_another_model_is_refused(good, bases):
    with pytest.raises(ValueError, match=r"for which the model in .* has no place"):
        import_peft(good, bases["gpt2"])


def test_a_pickle_is_not_read(good, bases, tmp_path):
    folder = changed(good, tmp_path)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(ValueError, match=r"adapter_model.bin is a pickle, which can carry code"):
        import_peft(folder, bases["llama"])
    (folder / "adapter_model.bin").unlink()
    with pytest.raises(ValueError, match=r"it has no adapter_model.safetensors"):
        import_peft(folder, bases["llama"])


def test_the_model_that_an_adapter_names_is_not_opened(good, bases, tmp_path):
    named = {"base_model_name_or_path": "../../../../etc/passwd"}
    found = import_peft(changed(good, tmp_path, named), bases["llama"])
    assert found.config.origin.folder == str(bases["llama"])


def test_a_rank_above_the_matrix_is_refused(pm, bases, tmp_path):
    pm.saved_adapter("llama", tmp_path / "peft", r=30)
    with pytest.raises(ValueError, match=r"rank is 30, but q of .* is a matrix of 16 x 16"):
        import_peft(tmp_path / "peft", bases["llama"])
