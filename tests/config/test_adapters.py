import pytest

import clearformer as cf
from clearformer.config import run_from_json, to_json
from clearformer.config.settings import with_settings
from clearformer.runs.start import preset_config


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rank": 0}, "rank is 0, but it must be at least 1"),
        ({"rank": 10**9}, "rank is 1000000000, but it must be at most 65,536"),
        ({"alpha": 0.0}, "alpha is 0.0, but it must be above 0"),
        ({"dropout": 1.0}, "dropout is 1.0, but it must be at least 0 and below 1"),
        ({"targets": "q,w"}, "targets has 'w'"),
        ({"targets": ""}, "targets has ''"),
        ({"targets": "q,q"}, "targets is 'q,q', which names a matrix twice"),
        ({"targets": "q,qkv"}, "which names a matrix twice"),
        ({"targets": "all,q"}, "which names a matrix twice"),
    ],
)
@pytest.mark.parametrize("kind", [cf.LoRA, cf.DoRA])
def test_wrong_settings_are_refused(kind, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        kind(**settings)


def test_scale():
    assert cf.LoRA(rank=8, alpha=16).scale == 2
    assert cf.LoRA(rank=4, alpha=8, rank_stabilized=True).scale == 4


def test_settings_by_name():
    base = preset_config("modern-tiny")
    config = with_settings(base, {"adapter": "dora", "rank": 4, "adapter_targets": "q,v"})
    assert config.train.adapter == cf.DoRA(rank=4, targets="q,v")
    assert run_from_json(to_json(config)) == config
    value = cf.LoRA(rank=2, base="int8")
    assert with_settings(base, {"adapter": value}).train.adapter == value


@pytest.mark.parametrize(("name", "value"), [("freeze", "body"), ("embedding_std", 0.02)])
def test_settings_that_change_the_model_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is .*, but with an adapter the model stays"):
        with_settings(preset_config("modern-tiny"), {"adapter": "lora", name: value})


def test_configs_of_earlier_versions_have_no_adapter():
    document = to_json(preset_config("modern-tiny"))
    del document["train"]["adapter"]
    assert run_from_json(document).train.adapter is None
