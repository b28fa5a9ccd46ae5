"""Streaming generation: equal to the uncached model and transformers, in any batch."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from clearformer import config as c
from clearformer.builder import build
from clearformer.config import GenerationDefaults
from clearformer.families import gpt2, modern
from clearformer.generate.context import NoLimit, SlidingWindow, StopAtLimit
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.sequence import GeneratedSequence, GenerationConfig
from clearformer.generate.speculate import PromptLookup
from clearformer.generate.stream import generate, generate_many, generate_tokens, stream
from clearformer.text import Bytes

GREEDY = Sampling(temperature=0)
PROMPT = [3, 1, 4, 1, 5]
CONVOLUTIONS = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
FAMILIES = ["generator", "gpt2", "modern", "sparse", "xl"]


def ids(tokens):
    return [token.id for token in tokens]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_matches_uncached_model(family, writer, uncached):
    made = writer(family)
    assert ids(stream(made, PROMPT, GREEDY, max_tokens=8)) == uncached(made, PROMPT, 8)


# --- transformers --------------------------------------------------------------------------


def of_transformers(theirs, config, names):
    """Our model with their weights; names are formats of the layer, lists are concatenated."""
    state = theirs.state_dict()
    ours = build(config)
    mine = ours.state_dict()
    for name, their_names in names.items():
        for layer in range(config.layers if "{}" in name else 1):
            weight = torch.cat([state[each.format(layer)] for each in their_names])
            lies = their_names[0].endswith(CONVOLUTIONS)  # GPT-2 has its matrices the other way
            mine[name.format(layer)] = weight.T if lies else weight
    ours.load_state_dict(mine)
    return LanguageModel(ours.eval(), config, GenerationDefaults())


def gpt2_pair(scrambled):
    shape = {"vocab_size": 40, "n_positions": 24, "n_embd": 20, "n_layer": 2, "n_head": 4}
    theirs = scrambled(GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=None, eos_token_id=None)))
    config = c.ModelConfig(**vars(gpt2()) | {
        "vocabulary": 40, "length": 24, "width": 20, "layers": 2, "heads": 4, "hidden": 80,
    })  # fmt: skip
    pairs = {
        "attention_norm": "ln_1", "feed_forward_norm": "ln_2", "attention.project": "attn.c_attn",
        "attention.output": "attn.c_proj", "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }  # fmt: skip
    names = {
        f"stack.blocks.{{}}.{ours}.{kind}": [f"transformer.h.{{}}.{their}.{kind}"]
        for ours, their in pairs.items()
        for kind in ("weight", "bias")
    }
    names |= {f"stack.norm.{kind}": [f"transformer.ln_f.{kind}"] for kind in ("weight", "bias")}
    names |= {
        "embedding.token.weight": ["transformer.wte.weight"],
        "embedding.position.table.weight": ["transformer.wpe.weight"],
        "head.project.weight": ["transformer.wte.weight"],
    }
    return theirs.eval(), of_transformers(theirs, config, names)


def llama_pair(scrambled):
    shape = {
        "vocab_size": 40, "max_position_embeddings": 64, "hidden_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 24,
    }  # fmt: skip
    theirs = scrambled(LlamaForCausalLM(LlamaConfig(**shape, bos_token_id=None, eos_token_id=None)))
    config = c.ModelConfig(**vars(modern()) | {
        "vocabulary": 40, "length": 64, "width": 16, "layers": 2, "heads": 4, "key_heads": 2,
        "hidden": 24, "query_key_norm": None,
    })  # fmt: skip
    block = "stack.blocks.{}."
    layer = "model.layers.{}."
    names = {
        block + "attention_norm.weight": [layer + "input_layernorm.weight"],
        block + "feed_forward_norm.weight": [layer + "post_attention_layernorm.weight"],
        block + "attention.project.weight": [layer + f"self_attn.{n}_proj.weight" for n in "qkv"],
        block + "attention.output.weight": [layer + "self_attn.o_proj.weight"],
        block + "feed_forward.up.weight": [layer + f"mlp.{n}_proj.weight" for n in ("gate", "up")],
        block + "feed_forward.down.weight": [layer + "mlp.down_proj.weight"],
        "embedding.token.weight": ["model.embed_tokens.weight"],
        "stack.norm.weight": ["model.norm.weight"],
        "head.project.weight": ["lm_head.weight"],
    }
    return theirs.eval(), of_transformers(theirs, config, names)


@pytest.mark.parametrize("pair", [gpt2_pair, llama_pair])
@pytest.mark.parametrize(
    ("sampling", "theirs_how"),
    [
        (GREEDY, {}),
        (Sampling(temperature=0, repetition_penalty=1.4), {"repetition_penalty": 1.4}),
        (Sampling(temperature=0, banned_ids=(5, 7)), {"bad_words_ids": [[5], [7]]}),
    ],
)
def test_matches_transformers(pair, sampling, theirs_how, scrambled):
    theirs, ours = pair(scrambled)
    prompts = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8, 9, 7, 9]]
    longest = max(map(len, prompts))
    padded = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    attention_mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    if "repetition_penalty" in theirs_how:  # theirs would count the padding as text
        prompts, padded, attention_mask = prompts[2:], padded[2:], attention_mask[2:]
    expected = theirs.generate(
        padded,
        attention_mask=attention_mask,
        max_new_tokens=12,
        do_sample=False,
        pad_token_id=0,
        **theirs_how,
    )[:, longest:]
    found = generate_many(ours, prompts, GenerationConfig(sampling=sampling, max_tokens=12))
    assert [ids(each.tokens) for each in found] == expected.tolist()


# --- company -------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [SlidingWindow(), SlidingWindow(0.5), StopAtLimit()])
@pytest.mark.parametrize("family", ["gpt2", "modern", "sparse"])
def test_seeded_text_does_not_depend_on_batch(family, rule, writer):
    made = writer(family)
    config = GenerationConfig(max_tokens=14, eos_ids=(11,))
    prompts = [PROMPT, [9], [2, 6, 5, 3, 5, 8, 9, 7, 9, 3], [1, 2]]
    together = list(generate_many(made, prompts, config, samples=2, seed=7, context_overflow=rule))
    assert len(together) == 8
    for index, each in enumerate(together):
        alone = stream(
            made, prompts[index // 2], config=config, seed=7, index=index, context_overflow=rule
        )
        assert ids(alone) == ids(each.tokens)
    assert len({tuple(ids(each.tokens)) for each in together}) == 8
    assert len({each.finish_reason for each in together}) > 1


def test_different_seeds_give_different_texts(writer):
    made = writer()
    texts = [tuple(ids(stream(made, [1], max_tokens=12, seed=seed))) for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2]


def test_prefill_chunks_do_not_change_text(writer):
    made = writer("modern")
    rows = [
        [GeneratedSequence([*PROMPT, *PROMPT], GenerationConfig(max_tokens=9), seed=2)]
        for _ in range(2)
    ]
    whole, parts = (
        list(generate_tokens(made, r, SlidingWindow(), chunk=chunk))
        for r, chunk in zip(rows, (None, 3), strict=True)
    )
    assert [t.id for _, t in whole] == [t.id for _, t in parts]


# --- past the context ----------------------------------------------------------------------


def test_sliding_window_reprocesses_last_part(writer, uncached):
    made = writer("gpt2")  # a context of 12
    text = list(PROMPT)
    window = text
    for _ in range(40):
        token = uncached(made, window, 1)[0]
        text, window = [*text, token], [*window, token]
        if len(window) > 12:
            window = window[-9:]
    assert ids(stream(made, PROMPT, GREEDY, max_tokens=40)) == text[5:]


def test_stop_at_limit_ends_at_context(writer):
    found = generate(writer("gpt2"), PROMPT, GREEDY, max_tokens=40, context_overflow=StopAtLimit())
    # The last token of a full context has no place, but it has been drawn.
    assert len(found.tokens) == 12 - 5 + 1
    assert found.finish_reason == "context"


@pytest.mark.parametrize("position", [c.Rotary(), c.ALiBi(), c.RelativeXL()])
def test_no_limit_matches_uncached_model(position, writer, uncached):
    made = writer("modern", key_heads=None, position=position)
    found = ids(stream(made, PROMPT, GREEDY, max_tokens=20, context_overflow=NoLimit()))
    assert found == uncached(made, PROMPT, 20)


def test_memory_model_generates_past_context(writer):
    made = writer("xl")
    tokens = list(stream(made, PROMPT, max_tokens=50))
    assert len(tokens) == 50
    config = GenerationConfig(max_tokens=50)
    both = list(generate_many(made, [PROMPT, [7, 8]], config))
    assert ids(both[0].tokens) == ids(stream(made, PROMPT, config=config))
    assert ids(both[1].tokens) == ids(stream(made, [7, 8], config=config, index=1))


def test_prompt_longer_than_context_keeps_its_end_or_is_rejected(writer):
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3]
    found = ids(stream(writer(), prompt, max_tokens=2))
    assert found == ids(stream(writer(), prompt[-9:], max_tokens=2))  # 3/4 of the context
    message = r"^the prompt has 13 tokens, but the context of gpt2-small is 12: give its last part"
    with pytest.raises(ValueError, match=message):
        next(stream(writer(), prompt, max_tokens=2, context_overflow=StopAtLimit()))


# --- the rest ------------------------------------------------------------------------------


def test_completion_has_text_and_finish_reason(writer):
    made = writer("generator", tokenizer=Bytes(), vocabulary=256)
    found = generate(made, "ab", Sampling(banned_ids=tuple(range(128, 256))), max_tokens=9)
    assert found.text == "".join(token.text for token in found.tokens)
    assert len(found.text) == 9
    assert (found.prompt, found.finish_reason) == ("ab", "length")


def test_restores_training_mode(writer):
    made = writer()
    made.module.train()
    list(stream(made, [1], max_tokens=2))
    assert made.module.training
    made.module.eval()


def test_rejects_zero_samples(writer):
    with pytest.raises(ValueError, match=r"^samples is 0, but it must be at least 1"):
        next(generate_many(writer(), [[1]], GenerationConfig(), samples=0))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            GenerationConfig(sampling=Sampling(banned_ids=(999,))),
            "banned_ids has the id 999, but gpt2-small has the ids 0",
        ),
        (
            GenerationConfig(sampling=Sampling(banned_ids=(-1,))),
            "banned_ids has the id -1, but gpt2-small has the ids 0 to",
        ),
        (
            GenerationConfig(sampling=Sampling(forced_ids=(999,))),
            "forced_ids has the id 999, but gpt2-small has the ids 0",
        ),
        (
            GenerationConfig(eos_ids=(999,), min_tokens=2),
            "eos_ids has the id 999, but gpt2-small has the ids 0 to 12: gi",
        ),
    ],
)
def test_rejects_token_ids_outside_vocabulary(config, message, writer):
    for begun in (stream(writer(), [1], config=config), generate_many(writer(), [[1]], config)):
        with pytest.raises(ValueError, match=f"^{message}"):
            next(begun)


def test_no_prompts_give_no_texts(writer):
    assert list(generate_many(writer(), [], GenerationConfig())) == []


def test_draft_does_not_change_single_text(writer):
    made = writer()
    plain, drafted = (
        generate(made, PROMPT, max_tokens=12, draft=draft) for draft in (None, PromptLookup())
    )
    assert ids(plain.tokens) == ids(drafted.tokens)


@pytest.mark.parametrize("draft", [None, PromptLookup()])
def test_stop_condition_keeps_generated_text(writer, draft):
    made, config = writer("modern", length=64), GenerationConfig(max_tokens=9)
    whole = list(generate_many(made, [PROMPT] * 3, config, draft=draft))
    asked = iter(range(1000))
    found = list(
        generate_many(
            made, [PROMPT] * 3, config, draft=draft, should_stop=lambda: next(asked) >= 15
        )
    )
    assert all(
        each.tokens == expected.tokens[: len(each.tokens)]
        for each, expected in zip(found, whole, strict=False)
    )
    # Side by side all were begun; one after the other the first is done and the last not begun.
    reasons = ["length", "interrupted"] if draft else ["interrupted"] * 3
    assert [each.finish_reason for each in found] == reasons
    assert sum(len(each.tokens) for each in found) == (13 if draft else 14)


def test_generates_nothing_if_stopped_at_once(writer):
    assert list(stream(writer(), PROMPT, should_stop=lambda: True)) == []
    assert (
        list(generate_many(writer(), [PROMPT], GenerationConfig(), should_stop=lambda: True)) == []
    )
