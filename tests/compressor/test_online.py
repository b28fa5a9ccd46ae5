import numpy as np
import pytest
import torch

from clearformer.compressor.online import Online, OnlineLearner
from clearformer.generate.language_model import LanguageModel


@pytest.fixture
def model(byte_model):
    model = byte_model()
    return LanguageModel(model.module, model.config, model.run_config.generation, model.tokenizer)


WINDOW = np.arange(24).reshape(2, 12)


def test_original_model_is_unchanged(model):
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    learner = OnlineLearner(model, Online())
    learner.learn(WINDOW, WINDOW + 1)
    after = model.module.state_dict()
    assert all(after[name].equal(value) for name, value in before.items())
    assert not all(value.equal(before[name]) for name, value in learner.module.state_dict().items())


def test_learners_are_bitwise_equal(model):
    one, two = OnlineLearner(model, Online()), OnlineLearner(model, Online())
    for _ in range(3):
        one.learn(WINDOW, WINDOW + 1)
    torch.randn(100) @ torch.randn(100)  # other work in between
    for _ in range(3):
        two.learn(WINDOW, WINDOW + 1)
    pairs = zip(one.module.parameters(), two.module.parameters(), strict=True)
    assert all(first.equal(second) for first, second in pairs)


def test_learning_lowers_loss(model):
    learner = OnlineLearner(model, Online(learning_rate=1e-2, warmup=1, updates=5))
    losses = []
    for _ in range(4):
        with torch.no_grad():
            batch = torch.from_numpy(WINDOW)
            scores = learner.module(batch).log_softmax(-1)
            losses.append(-float(scores.gather(2, batch[..., None] + 1).mean()))
        learner.learn(WINDOW, WINDOW + 1)
    assert losses == sorted(losses, reverse=True)
    assert learner.step == 20


def test_rejects_int8_model(byte_model):
    model = byte_model().quantize()
    language_model = LanguageModel(
        model.module, model.config, model.run_config.generation, model.tokenizer
    )
    with pytest.raises(ValueError, match=r"cannot be trained \(int8\)"):
        OnlineLearner(language_model, Online())


@pytest.mark.parametrize(
    "wrong",
    [{}, {"learning_rate": 1, "warmup": 1, "updates": 1}, {"learning_rate": 0.1, "warmup": 1}],
)
def test_from_json_rejects_invalid_settings(wrong):
    with pytest.raises(ValueError, match="unknown online settings"):
        Online.from_json(wrong)


def test_settings_round_trip_through_json():
    for settings in (Online(), Online.from_scratch()):
        assert Online.from_json(settings.to_json()) == settings
    with pytest.raises(ValueError, match="`updates` is 0"):
        Online(updates=0)
    with pytest.raises(ValueError, match="`learning_rate` is nan"):
        Online(learning_rate=float("nan"))
