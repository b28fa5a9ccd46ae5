"""Beam search for decoder-only models: equal to transformers, alone and in any batch."""

import re
from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from clearformer.config import GenerationDefaults
from clearformer.generate.beam import Beam, search
from clearformer.generate.beam_generate import PromptBeams, generate_beams
from clearformer.generate.context import NoLimit, SlidingWindow, StopAtLimit
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.stream import generate
from clearformer.hub.importing import import_checkpoint
from clearformer.inference.int8 import quantize
from clearformer.inference.modes import inference_mode
from clearformer.inference.packed_linear import pack
from clearformer.text import Bytes

PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8, 9, 7, 9], [2]]
FAMILIES = ["generator", "gpt2", "modern", "sparse", "xl"]


def gpt2():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=4,
                   bos_token_id=None, eos_token_id=None)
    )  # fmt: skip


def llama():
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=40, max_position_embeddings=32, hidden_size=16, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
                    bos_token_id=None, eos_token_id=None)
    )  # fmt: skip


@pytest.fixture
def pair(scrambled, tmp_path):
    """Their model with random weights, and our writer of the same."""

    def make(their_model, seed):
        torch.manual_seed(seed)
        theirs = scrambled(their_model()).eval()
        theirs.save_pretrained(tmp_path)
        imported = import_checkpoint(tmp_path)
        return theirs, LanguageModel(imported.model(), imported.config, imported.generation)

    return make


def ending(writer, ends):
    return replace(writer, generation=GenerationDefaults(end_ids=ends))


def found_by_transformers(theirs, prompts, beam, ends, max_tokens=12, **more):
    """Tokens and scores of all prompts side by side, padded on the left."""
    longest = max(map(len, prompts))
    padded = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    attention_mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    out = theirs.generate(
        padded, attention_mask=attention_mask, max_new_tokens=max_tokens, do_sample=False,
        pad_token_id=39, num_beams=beam.width, num_return_sequences=beam.best,
        length_penalty=beam.length_penalty,
        early_stopping=False, eos_token_id=list(ends) or None, output_scores=True,
        return_dict_in_generate=True, **more,
    )  # fmt: skip
    found = []
    for row in out.sequences[:, longest:].tolist():
        end = next((place for place, token in enumerate(row) if token in ends), len(row))
        found.append(tuple(row[:end]))
    return found, out.sequences_scores


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [0, 1, 3])  # of tokens that end a text
@pytest.mark.parametrize(
    "beam",
    [
        Beam(width=4, best=4),
        Beam(width=3, length_penalty=0.0),
        Beam(width=2, best=2, length_penalty=2.0),
    ],
)
@pytest.mark.parametrize("their_model", [gpt2, llama])
def test_matches_transformers(pair, their_model, beam, count, seed):
    theirs, writer = pair(their_model, seed)
    # Tokens that these very texts have, so that some end and some do not.
    free = generate_beams(ending(writer, ()), PROMPTS, beam, max_tokens=12)
    ends = tuple(sorted({each[0].tokens[place] for place, each in enumerate(free, 4)}))[:count]
    expected, scores = found_by_transformers(theirs, PROMPTS, beam, ends)
    ours = ending(writer, ends)
    together = [
        each for several in generate_beams(ours, PROMPTS, beam, max_tokens=12) for each in several
    ]
    assert [each.tokens for each in together] == expected
    torch.testing.assert_close(torch.tensor([each.score for each in together]), scores)
    assert {each.finish_reason for each in together} <= ({"end", "length"} if ends else {"length"})
    alone = [generate_beams(ours, [prompt], beam, max_tokens=12)[0] for prompt in PROMPTS]
    assert [each.tokens for several in alone for each in several] == expected


@pytest.mark.parametrize("their_model", [gpt2, llama])
def test_logits_processors_match_transformers(pair, their_model):
    beam, reasons = Beam(width=4, best=2), set()
    for seed in range(4):
        theirs, writer = pair(their_model, seed)
        end = generate_beams(ending(writer, ()), PROMPTS, beam, max_tokens=12)[0][0].tokens[2]
        ours = ending(writer, (end,))
        expected, _ = found_by_transformers(theirs, PROMPTS, beam, (end,), min_new_tokens=6)
        found = generate_beams(ours, PROMPTS, beam, max_tokens=12, min_tokens=6)
        assert [each.tokens for several in found for each in several] == expected
        assert min(len(each.tokens) for several in found for each in several) >= 6
        reasons |= {each.finish_reason for several in found for each in several}
        never = {token for several in found for token in several[0].tokens[:2]} - {end}
        words = [[token] for token in never]
        expected, _ = found_by_transformers(theirs, PROMPTS, beam, (end,), bad_words_ids=words)
        found = generate_beams(ours, PROMPTS, beam, max_tokens=12, banned=tuple(never))
        assert [each.tokens for several in found for each in several] == expected
        reasons |= {each.finish_reason for several in found for each in several}
    assert reasons == {"end", "length"}


@pytest.mark.parametrize("family", FAMILIES)
def test_beam_width_one_is_greedy(family, writer):
    made = writer(family, length=24)
    for prompt in PROMPTS:
        greedy = generate(made, prompt, Sampling(temperature=0), max_tokens=9)
        (found,) = generate_beams(made, PROMPTS, Beam(width=1), max_tokens=9)[PROMPTS.index(prompt)]
        assert list(found.tokens) == [token.id for token in greedy.tokens]


@pytest.mark.parametrize("family", FAMILIES)
def test_prompt_beams_match_plain_search(family, writer, prompt_rows):
    made, beam = writer(family, length=24), Beam(width=3, best=3)
    prompt = torch.tensor([PROMPTS[0], PROMPTS[2][:5]])
    with inference_mode(made.module):
        simple = search(
            prompt_rows(made.module, made.config, prompt), beam, eos_ids=(0,), max_tokens=9
        )
        found = search(PromptBeams(made, prompt.tolist(), 9), beam, eos_ids=(0,), max_tokens=9)
    for ours, expected in zip(found, simple, strict=True):
        assert [each.tokens for each in ours] == [each.tokens for each in expected]
        assert [e.score for e in ours] == pytest.approx([e.score for e in expected], abs=1e-4)


def test_packed_model_matches_and_int8_is_close(writer):
    """A packed model finds the same texts, an int8 model texts of similar score."""
    made, beam = writer("modern", length=24), Beam(width=3, best=3)
    expected = generate_beams(made, PROMPTS, beam, max_tokens=9)
    packed = writer("modern", length=24)
    pack(packed.module, 9)
    assert [[each.tokens for each in several] for several in expected] == [
        [each.tokens for each in several]
        for several in generate_beams(packed, PROMPTS, beam, max_tokens=9)
    ]
    small = writer("modern", length=24)
    quantize(small.module)
    for several, before in zip(
        generate_beams(small, PROMPTS, beam, max_tokens=9), expected, strict=True
    ):
        assert several[0].score == pytest.approx(before[0].score, abs=0.1)


def test_text_ends_at_context_limit(writer):
    made, beam = writer("modern", length=12), Beam(width=2)
    found = [each for (each,) in generate_beams(made, [[1] * 9, [1] * 3], beam, max_tokens=6)]
    # The last token is not read.
    assert [(len(each.tokens), each.finish_reason) for each in found] == [
        (4, "context"),
        (6, "length"),
    ]
    alone = [
        generate_beams(made, [prompt], beam, max_tokens=6)[0][0] for prompt in ([1] * 9, [1] * 3)
    ]
    assert [each.tokens for each in alone] == [each.tokens for each in found]
    found = generate_beams(made, [[1] * 9, [1] * 3], beam, max_tokens=6, context_overflow=NoLimit())
    assert [(len(each.tokens), each.finish_reason) for (each,) in found] == [(6, "length")] * 2
    (stopped,) = generate_beams(
        made, [[1] * 9], beam, max_tokens=6, context_overflow=StopAtLimit()
    )[0]
    assert stopped.finish_reason == "context"


def test_stop_condition_returns_partial_texts(writer):
    made, beam, steps = writer("modern", length=24), Beam(width=2), iter([False] * 4 + [True])
    found = generate_beams(made, PROMPTS, beam, max_tokens=9, should_stop=lambda: next(steps))
    assert [(len(each.tokens), each.finish_reason) for (each,) in found] == [(5, "interrupted")] * 4
    assert found == [
        [replace(each, finish_reason="interrupted") for each in several]
        for several in generate_beams(made, PROMPTS, beam, max_tokens=5)
    ]


def test_text_continues_prompt(writer):
    made = writer("modern", Bytes(), vocabulary=256, length=24)
    (found,) = generate_beams(made, ["caf"], Beam(width=2), max_tokens=5)[0]
    assert found.text == bytes(found.tokens).decode(errors="replace")
    assert found.prompt == "caf"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"context_overflow": SlidingWindow()},
            "a beam search cannot slide, because every beam would be read again",
        ),
        ({"banned": (99,)}, "banned has the id 99, but modern-small has the ids 0 to "),
        (
            {"max_tokens": 0},
            "min_tokens is 0 and max_tokens is 0, but they must be",
        ),
        (
            {"max_tokens": 3, "min_tokens": 4},
            "min_tokens is 4 and max_tokens is 3, but they must be",
        ),
    ],
)
def test_rejects_invalid_arguments(writer, values, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        generate_beams(writer("modern"), [[1]], **values)
    with pytest.raises(ValueError, match="the prompt has 13 tokens, but the context of"):
        generate_beams(writer("modern"), [[1] * 13])
