"""LanguageModel: prompts it accepts, and models it rejects."""

import pytest
import torch
from torch._dynamo.utils import counters

from clearformer.builder import build
from clearformer.config import Full, GenerationDefaults, Local
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.stream import stream
from clearformer.text import BytePairs, Bytes
from clearformer.text.specs import BytePairSpec, byte_characters

PUBLISHED = BytePairs(
    BytePairSpec(
        vocabulary=(*sorted(byte_characters()), "<|endoftext|>"),
        merges=(),
        specials=("<|endoftext|>",),
    )
)


def test_prompts_may_be_text_or_ids(writer):
    reader = writer(tokenizer=Bytes(), vocabulary=256)
    assert reader.encode("ab") == [97, 98]
    assert reader.encode([1, 2]) == [1, 2]
    with pytest.raises(ValueError, match=r"^the prompt is a string, but there is no tokenizer"):
        writer().encode("ab")


@pytest.mark.parametrize("wrong", [-1, 13])
def test_rejects_ids_outside_vocabulary(wrong, writer):
    message = f"^the prompt has the id {wrong}, but gpt2-small has the ids 0 to 12: give ids of its"
    with pytest.raises(ValueError, match=message):
        writer().encode([3, wrong])


def test_empty_prompt_needs_bos_token(writer):
    reader = writer(tokenizer=PUBLISHED, vocabulary=257)
    assert reader.encode("") == [256]
    assert reader.eos_ids() == (256,)
    assert writer(tokenizer=PUBLISHED, vocabulary=256).eos_ids() == ()  # a token it does not have
    assert writer(tokenizer=Bytes()).eos_ids() == ()
    message = "the prompt is empty, and a bytes tokenizer has no token that begins a text"
    with pytest.raises(ValueError, match=f"^{message}: gpt2-small needs at least one token"):
        writer(tokenizer=Bytes()).encode("")
    with pytest.raises(
        ValueError, match=r"^the prompt is empty, and without a tokenizer it is not"
    ):
        writer().encode([])


@pytest.mark.parametrize("family", ["bert", "classifier", "original"])
def test_rejects_models_that_cannot_generate(family, small):
    config = small(family)
    with pytest.raises(ValueError, match=f"is {config.noun}: it can .*, not generate"):
        LanguageModel(build(config), config, GenerationDefaults())


@pytest.mark.parametrize("pattern", [Full(), Local(window=3)])
def test_rejects_non_causal_pattern(pattern, small):
    config = small("gpt2", patterns=(pattern,))
    with pytest.raises(ValueError, match=r"cannot generate: its pattern .* combine it with Causal"):
        LanguageModel(build(config), config, GenerationDefaults())


@pytest.mark.parametrize("family", ["gpt2", "modern"])
def test_compiled_steps_generate_same_tokens(family, writer):
    made = writer(family)
    torch._dynamo.reset()
    counters.clear()
    # Without generated code, which takes a minute: what is tested is what reaches the compiler.
    compiled = made.compiled(backend="eager")
    texts = [
        [token.id for token in stream(each, [3, 1, 4], Sampling(temperature=0), max_tokens=8)]
        for each in (made, compiled)
    ]
    assert texts[0] == texts[1]
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1  # for all lengths of the cache
