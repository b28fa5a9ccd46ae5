"""Speculative decoding: same tokens with and without a draft, and the model's distribution."""

import pytest
import torch

from clearformer.builder import build
from clearformer.config import GenerationDefaults
from clearformer.generate.context import SlidingWindow, StopAtLimit
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.sequence import GeneratedSequence, GenerationConfig
from clearformer.generate.speculate import DraftModel, PromptLookup
from clearformer.generate.stream import stream

PROMPT = [3, 1, 4, 1, 5, 3, 1]


def drafts(writer, small):
    config = small("gpt2", layers=1)
    return {
        "lookup": PromptLookup(),
        "eager lookup": PromptLookup(longest=1, tokens=20),
        "itself": DraftModel(writer, tokens=3),
        "another": DraftModel(
            LanguageModel(build(config, seed=4).eval(), config, GenerationDefaults()), tokens=3
        ),
    }


@pytest.mark.parametrize("rule", [SlidingWindow(), StopAtLimit()])
@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), Sampling(temperature=0.7, repetition_penalty=1.2)]
)
@pytest.mark.parametrize("name", ["lookup", "eager lookup", "itself", "another"])
def test_draft_does_not_change_text(name, sampling, rule, writer, small):
    made = writer("gpt2")
    task = GenerationConfig(sampling=sampling, max_tokens=40)
    for seed in range(3):
        draft = drafts(made, small)[name]
        with_draft = stream(
            made, PROMPT, config=task, seed=seed, context_overflow=rule, draft=draft
        )
        without = stream(made, PROMPT, config=task, seed=seed, context_overflow=rule)
        assert [t.id for t in with_draft] == [t.id for t in without]


def test_draft_reduces_forward_passes(writer, monkeypatch):
    made = writer("gpt2", length=64)
    counts = []
    for draft in (None, DraftModel(made, tokens=4)):
        steps = []
        hidden = type(made.module).hidden
        with monkeypatch.context() as patch:
            patch.setattr(
                type(made.module),
                "hidden",
                lambda self, tokens, *a, hidden=hidden, steps=steps, **k: (
                    steps.append(tokens.shape[1]) or hidden(self, tokens, *a, **k)
                ),
            )
            list(stream(made, PROMPT, Sampling(temperature=0), max_tokens=40, draft=draft))
        counts.append(sum(length == 5 for length in steps))
    assert counts == [0, 8]  # a model that drafts for itself is always right: five at a time


def test_distribution_matches_model(writer):
    made = writer("gpt2")
    draft = DraftModel(writer("gpt2", layers=1), tokens=2)
    with torch.inference_mode():
        expected = made.module(torch.tensor([PROMPT]))[0, -1].softmax(0)
    counts = torch.zeros(13)
    seconds = torch.zeros(13, 13)
    for seed in range(2000):
        first, second = (t.id for t in stream(made, PROMPT, max_tokens=2, seed=seed, draft=draft))
        counts[first] += 1
        seconds[first, second] += 1
    # Chi-square with 12 degrees of freedom: above 33 once in a thousand.
    assert float(((counts - 2000 * expected) ** 2 / (2000 * expected)).sum()) < 33
    likely = int(counts.argmax())
    with torch.inference_mode():
        expected = made.module(torch.tensor([[*PROMPT, likely]]))[0, -1].softmax(0) * counts[likely]
    assert float(((seconds[likely] - expected) ** 2 / expected).sum()) < 33


def test_prompt_lookup_proposes_last_continuation():
    row = GeneratedSequence([1, 2, 3, 4, 9, 2, 3, 5, 6, 2, 3], GenerationConfig())
    assert list(PromptLookup(longest=2, tokens=3).propose(row)) == [5, 6, 2]
    assert list(PromptLookup().propose(GeneratedSequence([1, 2, 3], GenerationConfig()))) == []


def test_rejects_unsupported_drafts(writer):
    with pytest.raises(ValueError, match=r"has a memory of hidden states that cannot drop tokens"):
        next(stream(writer("xl"), PROMPT, max_tokens=2, draft=PromptLookup()))
    draft = DraftModel(writer(vocabulary=20))
    with pytest.raises(ValueError, match=r"^the draft has 20 tokens, but gpt2-small has 13"):
        next(stream(writer(), PROMPT, max_tokens=2, draft=draft))
    with pytest.raises(ValueError, match=r"^tokens is 0, but it must be at least 1"):
        PromptLookup(tokens=0)
