"""Architectures of llama.cpp: settings, tensor names and rotary factors, both ways."""

import pytest
import torch
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, TensorNameMap

from clearformer.builder import outline
from clearformer.config import Biases, Llama3Scaling, Rotary
from clearformer.hub.export_family import choose_family
from clearformer.hub.gguf_architectures import (
    ARCHITECTURES,
    NeighbourQKV,
    architecture_for,
    architecture_of,
    rotary_factors,
)
from clearformer.hub.tensor_names import qkv_rows, their_names

WITHOUT_NORM = {"query_key_norm": None}
QKV_BIASES = Biases(attention=True, attention_output=False, feed_forward=False)
KINDS = {
    "gpt2": ("gpt2", {}),
    "llama": ("modern", WITHOUT_NORM),
    "qwen2": ("modern", {**WITHOUT_NORM, "biases": QKV_BIASES}),
    "qwen3": ("modern", {}),
}


@pytest.fixture
def written(small):
    """Architecture, config and config.json of a small model."""

    def make(kind, **changes):
        family, settings = KINDS[kind]
        _, config, _, document = choose_family(small(family, **settings, **changes))
        return architecture_for(config, document), config, document

    return make


class Shapes:
    """Tensor names and shapes without data."""

    def __init__(self, shapes):
        self.shapes = shapes

    def names(self):
        return self.shapes

    def shape(self, name):
        return self.shapes[name]

    def tensor(self, name):
        return self.shapes[name]


def shapes_of(architecture, config):
    found = {}
    for name, parameter in outline(config).named_parameters():
        names, layout = their_names(architecture.names(config), name)
        found |= dict(zip(names, layout.shapes(tuple(parameter.shape), config), strict=True))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_settings_come_back(written, kind):
    architecture, config, document = written(kind)
    assert architecture.name == kind
    keys = architecture.write_settings(document)
    metadata = {"general.architecture": kind, **keys}
    assert architecture_of(metadata) is architecture
    weights = Shapes(shapes_of(architecture, config))
    again = architecture.read_settings(metadata, weights)
    shared = again.keys() & document.keys()
    assert {k: again[k] for k in shared} == {k: document[k] for k in shared}


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_those_of_the_library(written, kind):
    """The names in transformers, mapped by the gguf library, are the names in our table."""
    architecture, config, _ = written(kind)
    number = {name: arch for arch, name in MODEL_ARCH_NAMES.items()}[kind]
    theirs = TensorNameMap(MODEL_ARCH(number), config.layers)
    expected = set()
    for name, _ in outline(config).named_parameters():
        for each in their_names(architecture.family.renames(config), name)[0]:
            stem, _, suffix = each.rpartition(".")
            mapped = theirs.get_name(stem)
            assert mapped is not None, each
            expected.add(f"{mapped}.{suffix}")
    assert set(shapes_of(architecture, config)) == expected


def test_neighbours_and_halves(small):
    config = small("modern", heads=4, key_heads=2)
    layout = NeighbourQKV(qkv_rows, config.resolved_head_width)
    ours = torch.randn(sum(qkv_rows(config)), 3)
    parts = layout.split(ours, config)
    assert layout.join(parts).equal(ours)
    width = config.resolved_head_width
    first = ours[:width]
    assert parts[0][0:2].equal(first[[0, width // 2]])  # a pair is side by side
    assert parts[2].equal(ours[-qkv_rows(config)[2] :])


def test_unknown_key_is_refused(written):
    architecture, config, document = written("llama")
    keys = {**architecture.write_settings(document), "llama.expert_count": 8}
    with pytest.raises(ValueError, match=r"llama.expert_count is 8, which clearformer does not"):
        architecture.read_settings(keys, Shapes(shapes_of(architecture, config)))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"llama.block_count": None}, r"it lacks the key llama.block_count"),
        ({"llama.rope.dimension_count": 2}, r"rope.dimension_count is 2, but a head has the width"),
        ({"llama.rope.scaling.type": "yarn"}, r"rope.scaling.type is 'yarn', but clearformer"),
    ],
)
def test_settings_that_are_refused(written, changes, sentence):
    architecture, config, document = written("llama")
    keys = {**architecture.write_settings(document), **changes}
    keys = {key: value for key, value in keys.items() if value is not None}
    with pytest.raises(ValueError, match=sentence):
        architecture.read_settings(keys, Shapes(shapes_of(architecture, config)))
    with pytest.raises(ValueError, match=r"it lacks the tensor token_embd.weight"):
        architecture.read_settings(architecture.write_settings(document), Shapes({}))


def test_unknown_architecture_is_refused():
    for name in ("mamba", None, ["gpt2"]):
        with pytest.raises(ValueError, match=r"but clearformer reads gpt2, llama, qwen2, qwen3"):
            architecture_of({"general.architecture": name})
    assert set(ARCHITECTURES) <= set(MODEL_ARCH_NAMES.values())


@pytest.mark.parametrize(
    ("family", "changes", "sentence"),
    [
        (
            "gpt2",
            {"activation": "relu"},
            "its activation is relu, but llama.cpp computes gelu_tanh",
        ),
        ("bert", {}, r"it is a .*, and GGUF is for generators"),
    ],
)
def test_models_that_llama_cpp_lacks(small, family, changes, sentence):
    _, config, _, document = choose_family(small(family, **changes))
    with pytest.raises(ValueError, match=sentence):
        architecture_for(config, document)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_factors_of_llama3(written, factor):
    scaling = Llama3Scaling(factor=factor, low=1.0, high=4.0, length=16)
    position = Rotary(base=100.0, scaling=scaling)
    architecture, config, document = written("llama", position=position, width=32, heads=4)
    factors = rotary_factors(config)
    assert factors.max() == factor
    weights = Shapes({**shapes_of(architecture, config), "rope_freqs.weight": factors})
    keys = architecture.write_settings(document)
    again = architecture.read_settings(keys, weights)
    assert again["rope_scaling"]["factor"] == factor
    read = architecture.family.read_config
    from clearformer.hub.hf_config import HFConfig

    assert read(HFConfig(again, "m.gguf"), set(weights.names())).position == position
    weights.shapes["rope_freqs.weight"] = factors + 0.5
    with pytest.raises(ValueError, match=r"rope_freqs.weight are not those of Llama 3"):
        architecture.read_settings(keys, weights)
