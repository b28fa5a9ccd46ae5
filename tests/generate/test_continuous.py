"""Continuous batching: every sequence is the same as if generated alone."""

import pytest
import torch

from clearformer import config as c
from clearformer.generate.constraints import ChoiceConstraint
from clearformer.generate.context import StopAtLimit
from clearformer.generate.continuous import ContinuousBatch
from clearformer.generate.sampling import Sampling
from clearformer.generate.sequence import GenerationConfig
from clearformer.generate.stream import generate_tokens, start_sequences
from clearformer.text import Bytes

PROMPTS = [[3, 1, 4], [5] * 9, [2], [6, 5], [1] * 20, [7, 7, 7, 7]]
FAMILIES = ["generator", "gpt2", "modern", "sparse", "xl"]
DRAWN = GenerationConfig(sampling=Sampling(temperature=1.0), max_tokens=30)


def alone(model, prompt, config, index, overflow=None):
    (sequence,) = start_sequences(model, [prompt], config, 5, index)
    list(generate_tokens(model, [sequence], overflow))
    return sequence


def finished(batch, sequences, every=3):
    """Add a sequence every few steps, and step until all have ended; tokens of each."""
    tokens = {sequence: [] for sequence in sequences}
    waiting, step = list(sequences), 0
    while waiting or len(batch):
        if waiting and step % every == 0:
            batch.add(waiting.pop(0))
        for update in batch.step():
            assert update.problem is None
            tokens.setdefault(update.sequence, []).extend(update.tokens)
        step += 1
    return tokens


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("every", [1, 4])
def test_matches_generation_of_single_sequences(family, every, writer):
    """Texts outgrow the context of 24 tokens, so that windows slide too."""
    model = writer(family, Bytes(), vocabulary=256, length=24)
    made = [start_sequences(model, [p], DRAWN, 5, i)[0] for i, p in enumerate(PROMPTS)]
    tokens = finished(ContinuousBatch(model), made, every)
    for index, (sequence, prompt) in enumerate(zip(made, PROMPTS, strict=True)):
        expected = alone(model, prompt, DRAWN, index)
        assert sequence.generated == expected.generated
        assert sequence.text == expected.text
        assert sequence.finish_reason == expected.finish_reason
        assert tokens[sequence] == sequence.tokens


@pytest.mark.parametrize(
    "changes",
    [
        {"position": c.ALiBi()},
        {"position": c.Sinusoidal()},
        {"position": c.Rotary(), "query_key_norm": c.RMSNorm(), "key_heads": 1},
        {"patterns": (c.Causal() & c.Local(4), c.Causal())},
    ],
)
def test_matches_single_sequences_for_every_position_and_pattern(changes, writer):
    model = writer("gpt2", vocabulary=40, length=24, heads=2, **changes)
    made = [start_sequences(model, [p], DRAWN, 5, i)[0] for i, p in enumerate(PROMPTS)]
    batch = ContinuousBatch(model)
    finished(batch, made)
    assert batch.together is not None
    for index, (sequence, prompt) in enumerate(zip(made, PROMPTS, strict=True)):
        assert sequence.generated == alone(model, prompt, DRAWN, index).generated


def test_batch_size_does_not_change_any_bit(writer):
    """The surprise of each token is the same float, alone in the batch or with others."""
    model = writer("modern", vocabulary=40, length=64)
    config = GenerationConfig(sampling=Sampling(temperature=1.0), max_tokens=12)

    def bits(prompts):
        made = [start_sequences(model, [p], config, 5, i)[0] for i, p in enumerate(prompts)]
        finished(ContinuousBatch(model), made, every=1)
        return [token.bits for token in made[0].tokens]

    assert bits(PROMPTS[:1]) == bits(PROMPTS[:3]) == bits(PROMPTS)


def test_removed_sequence_does_not_affect_others(writer):
    model = writer("gpt2", vocabulary=40, length=64)
    made = [start_sequences(model, [p], DRAWN, 5, i)[0] for i, p in enumerate(PROMPTS)]
    batch = ContinuousBatch(model)
    for sequence in made:
        batch.add(sequence)
    for _ in range(4):
        batch.step()
    batch.remove(made[0])  # it runs
    batch.remove(made[5])  # it is not read yet
    batch.remove(made[5])
    assert len(batch) == 4
    finished(batch, [])
    assert len(made[0].generated) < 30
    assert not made[5].generated
    for index in (1, 2, 3, 4):
        assert made[index].generated == alone(model, PROMPTS[index], DRAWN, index).generated


def test_failed_sequence_does_not_affect_others(writer):
    model = writer("gpt2", Bytes(), vocabulary=256, length=64)
    banned = GenerationConfig(sampling=Sampling(banned_ids=tuple(range(256))), max_tokens=5)
    (good,) = start_sequences(model, [[1]], DRAWN, 5, 0)
    (bad,) = start_sequences(model, [[1]], banned, 5, 1)
    batch = ContinuousBatch(model)
    batch.add(bad)
    batch.add(good)
    (update,) = batch.step()
    assert update.sequence is bad
    assert update.ended
    assert "no token is left to choose" in str(update.problem)
    finished(batch, [])
    assert good.generated == alone(model, [1], DRAWN, 0).generated


def test_constraints_and_limits_match_single_sequences(writer):
    model = writer("gpt2", Bytes(), vocabulary=256, length=12)
    choices = GenerationConfig(constraint=ChoiceConstraint(["yes", "no"], Bytes()), max_tokens=9)
    configs = [DRAWN, choices, GenerationConfig(sampling=Sampling(temperature=1), max_tokens=3)]
    made = [start_sequences(model, [[9, 9]], each, 5, i)[0] for i, each in enumerate(configs)]
    finished(ContinuousBatch(model, StopAtLimit()), made)
    for index, (sequence, config) in enumerate(zip(made, configs, strict=True)):
        expected = alone(model, [9, 9], config, index, StopAtLimit())
        assert (sequence.text, sequence.finish_reason) == (expected.text, expected.finish_reason)
    assert made[1].text in ("yes", "no")
    assert made[0].finish_reason == "context"


def test_rejects_prompt_longer_than_context(writer):
    model = writer("gpt2", vocabulary=40, length=24)
    (sequence,) = start_sequences(model, [[1] * 25], DRAWN)
    with pytest.raises(ValueError, match="the prompt has 25 tokens, but the context of"):
        ContinuousBatch(model).add(sequence)


def test_cache_grows_with_sequence(writer):
    model = writer("gpt2", vocabulary=40, length=4096)
    config = GenerationConfig(sampling=Sampling(temperature=1.0), max_tokens=4000)
    (sequence,) = start_sequences(model, [[1, 2]], config)
    batch = ContinuousBatch(model)
    batch.add(sequence)
    for _ in range(80):
        batch.step()
    (decoder,) = batch.decoders.values()
    assert decoder.capacity == 2 * (2 + 64)
    assert {cache.capacity for cache in decoder.memory} == {decoder.capacity}


def test_alternatives_are_the_most_likely_tokens(writer):
    model = writer("gpt2", vocabulary=40, length=24)
    config = GenerationConfig(sampling=Sampling(temperature=0), max_tokens=3, alternatives=2)
    sequence = alone(model, [1, 2], config, 0)
    for token in sequence.tokens:
        first, second = token.alternatives
        assert (first.id, first.bits) == (token.id, token.bits)
        assert second.bits >= first.bits
    with torch.inference_mode():
        logits = model.module(torch.tensor([[1, 2]]))[0, -1]
    assert [each.id for each in sequence.tokens[0].alternatives] == logits.topk(2).indices.tolist()
