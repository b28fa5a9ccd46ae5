"""Prompts of conversations: special tokens, and what ends an answer."""

from dataclasses import replace

import pytest

from clearformer.config import GenerationDefaults
from clearformer.generate.chat import chat_prompt, encode_rendered
from clearformer.text import BytePairs, Bytes, train
from clearformer.text.chat_template import ChatTemplate

ASKED = [{"role": "user", "content": "hi"}]
SOURCE = (
    "{% for m in messages %}{{ m.role + ':' + m.content + '<|stop|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def defaults(**more):
    return GenerationDefaults(chat_template=ChatTemplate(source=SOURCE), **more)


def test_text_that_ends_an_answer_is_a_stop_string(writer):
    model = writer("gpt2", Bytes(), defaults(end_ids=(7,)), vocabulary=256)
    prompt = chat_prompt(model, ASKED, "it")
    assert bytes(prompt.ids) == b"user:hi<|stop|>assistant:"
    assert (prompt.eos_ids, prompt.stop) == ((7,), ("<|stop|>",))


def test_a_line_of_the_plain_template_ends_an_answer(writer):
    """The whole line: an answer may have a line that begins with END."""
    plain = GenerationDefaults(chat_template=ChatTemplate())
    model = writer("gpt2", Bytes(), plain, vocabulary=256)
    assert chat_prompt(model, ASKED, "it").stop == ("\nEND\n",)


@pytest.mark.parametrize("after", ["", "\\n"])
def test_a_special_token_that_ends_an_answer_is_an_end_token(writer, after):
    spec = train("bpe", ["hi user assistant " * 50], 300).spec
    name = "<|stop|>"
    tokenizer = BytePairs(replace(spec, vocabulary=(*spec.vocabulary, name), specials=(name,)))
    template = ChatTemplate(source=SOURCE.replace(name, name + after))
    generation = GenerationDefaults(chat_template=template, end_ids=(3,))
    model = writer("gpt2", tokenizer, generation, vocabulary=tokenizer.size)
    prompt = chat_prompt(model, ASKED, "it")
    assert tokenizer.specials[name] in prompt.ids
    assert (prompt.eos_ids, prompt.stop) == ((3, tokenizer.specials[name]), ())


def test_what_is_missing(writer):
    with pytest.raises(ValueError, match="it has no chat template, so it cannot answer messages"):
        chat_prompt(writer("gpt2", Bytes(), vocabulary=256), ASKED, "it")
    with pytest.raises(ValueError, match="the model has no tokenizer, which messages need"):
        encode_rendered(writer("gpt2"), "x")
