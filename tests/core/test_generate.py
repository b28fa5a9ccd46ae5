"""The plain generation loop, and every faster decoding path against it, token by token."""

from functools import partial

import pytest
import torch

from clearformer.builder import build, caches
from clearformer.config import GenerationDefaults
from clearformer.core.generate import draw, generate, next_logits
from clearformer.families import FAMILIES
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling, sample
from clearformer.generate.sequence import Uniforms
from clearformer.inference.beam_cache import TreeBeams
from clearformer.inference.beam_state import TranslationBeams
from clearformer.inference.caches import inference_caches
from clearformer.inference.fast_decode import FastDecoder, supports
from clearformer.inference.modes import inference_mode

COUNT = 9
UNIFORMS = [Uniforms(3, 0)[place] for place in range(COUNT)]
SAMPLINGS = {"greedy": {"temperature": 0.0}, "drawn": {"temperature": 0.8, "top_k": 7}}
WRITERS = [name for name in FAMILIES if name not in ("bert", "classifier", "original")]
PROMPT = [1, 2, 3]


@pytest.fixture
def model(small, scrambled):
    def make(family, **changes):
        config = small(family, **changes)
        return scrambled(build(config)).eval(), config

    return make


def test_draw_returns_first_token_whose_cumulative_probability_exceeds_uniform():
    logits = torch.tensor([0.1, 0.4, 0.4, 0.1]).log()
    assert [draw(logits, u) for u in (0.0, 0.39, 0.41, 0.79, 0.81, 0.91)] == [1, 1, 2, 2, 0, 3]
    assert draw(logits, 0.99, temperature=0) == 1
    assert [draw(logits, u, top_k=1) for u in (0.0, 0.99)] == [1, 1]
    assert draw(logits, 0.7, temperature=0.01) == 2  # and no tie is broken by the temperature


@pytest.mark.parametrize("seed", range(20))
def test_draw_matches_sample(seed):
    torch.manual_seed(seed)
    logits, uniform = 3 * torch.randn(200).half().float(), float(torch.rand(()))
    for rules in ({}, {"temperature": 0.5}, {"top_k": 5}, {"temperature": 0.0}):
        assert draw(logits, uniform, **rules) == sample(logits, Sampling(**rules), uniform).id


def by_decoder(model, config, rules):
    """The library's own decoder: FastDecoder where it is supported, else modules and KVMemory."""
    decoder, tokens = LanguageModel(model, config, GenerationDefaults()).decoder(), []
    logits = decoder.prefill([PROMPT], COUNT)
    for uniform in UNIFORMS:
        tokens.append(sample(logits[0], Sampling(**rules), uniform).id)
        logits = decoder.step(tokens[-1:])
    return tokens


def by_fast_decoder(model, config, rules):
    """FastDecoder, from the first token on."""
    memory = inference_caches(config, 1, len(PROMPT) + COUNT)
    step, tokens = FastDecoder(model, memory), list(PROMPT)
    for place in range(len(PROMPT) + COUNT - 1):
        logits = step(torch.tensor([tokens[place]]), None)[0]
        for cache in memory:
            cache.advance()
        if place >= len(PROMPT) - 1:
            uniform = UNIFORMS[place - len(PROMPT) + 1]
            tokens.append(sample(logits, Sampling(**rules), uniform).id)
    return tokens[len(PROMPT) :]


def by_beam(growing, rules):
    """A beam search of width 1."""
    tokens, logits = [], growing.first()
    growing.widen(1)
    for uniform in UNIFORMS:
        tokens.append(sample(logits[0], Sampling(**rules), uniform).id)
        logits = growing.step(torch.tensor(tokens[-1:]))
    return tokens


@pytest.mark.parametrize("rules", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("family", WRITERS)
def test_fast_decoding_matches_plain_loop(family, rules, model, prompt_rows):
    own, config = model(family)
    expected = generate(next_logits(own.hidden, own.head), PROMPT, UNIFORMS, **rules)
    cached = next_logits(own.hidden, own.head, caches(config))
    assert generate(cached, PROMPT, UNIFORMS, **rules) == expected
    with inference_mode(own):
        static = inference_caches(config, 1, len(PROMPT) + COUNT)  # also KVMemory
        fast = next_logits(own.hidden, own.head, static)
        assert generate(fast, PROMPT, UNIFORMS, **rules) == expected
        assert by_decoder(own, config, rules) == expected
        assert by_beam(prompt_rows(own, config, torch.tensor([PROMPT])), rules) == expected
        assert supports(own, static) == (family != "xl")
        if supports(own, static):
            assert by_fast_decoder(own, config, rules) == expected


@pytest.mark.parametrize("rules", SAMPLINGS.values(), ids=SAMPLINGS)
def test_fast_decoding_with_source_matches_plain_loop(rules, model):
    own, config = model("original")
    source = torch.tensor([[5, 4, 3, 2, 6]])
    with inference_mode(own):
        hidden = partial(own.hidden, source=own.encode(source))
        expected = generate(next_logits(hidden, own.head), [1], UNIFORMS, **rules)
        for memory in (caches(config), inference_caches(config, 1, COUNT + 1)):
            found = generate(next_logits(hidden, own.head, memory), [1], UNIFORMS, **rules)
            assert found == expected
        for kind in (TranslationBeams, TreeBeams):
            assert by_beam(kind(own, config, 1, source), rules) == expected
