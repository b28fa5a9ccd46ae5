"""Chat templates render as in transformers and mark the parts that are answers."""

from pathlib import Path

import pytest

from clearformer.text.chat_template import MAX_TEMPLATE, ChatTemplate

FOLDER = Path(__file__).with_name("chat_templates")
TEMPLATES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.jinja"))}
USER = {"role": "user", "content": " Hi <b>\n\nthere "}
ANSWER = {"role": "assistant", "content": "Yo"}
CONVERSATIONS = [
    [USER],
    [USER, ANSWER],
    [USER, ANSWER, {"role": "user", "content": "“Ünï” & {{ 1 }}"}],
    [{"role": "system", "content": "Be kind. "}, USER],
    [
        {"role": "system", "content": "Be kind."},
        USER,
        {"role": "assistant", "content": "<think>\nso\n</think>\n\nYes"},
        USER,
        ANSWER,
    ],
]


def test_twenty_templates_are_tested():
    assert len(TEMPLATES) == 20


@pytest.mark.parametrize("name", TEMPLATES)
def test_matches_transformers(name):
    from transformers.utils.chat_template_utils import render_jinja_template

    template = ChatTemplate(source=TEMPLATES[name], bos_token="<s>", eos_token="</s>")
    for messages in CONVERSATIONS:
        for prompt in (False, True):
            theirs, _ = render_jinja_template(
                [messages],
                chat_template=TEMPLATES[name],
                add_generation_prompt=prompt,
                bos_token="<s>",
                eos_token="</s>",
            )
            assert template.render(messages, add_generation_prompt=prompt) == theirs[0]


def test_missing_special_token_is_undefined():
    template = ChatTemplate(source="{{ 'x' if bos_token is defined else 'y' }}{{ eos_token }}")
    assert template.render([USER]) == "y"


# --- answers -------------------------------------------------------------------------------


def test_parts_mark_answers():
    (parts,) = ChatTemplate(source=TEMPLATES["chatml"]).examples([USER, ANSWER, USER, ANSWER])
    assert parts == [
        ("<|im_start|>user\n Hi <b>\n\nthere <|im_end|>\n<|im_start|>assistant\n", False),
        ("Yo<|im_end|>\n", True),
        ("<|im_start|>user\n Hi <b>\n\nthere <|im_end|>\n<|im_start|>assistant\n", False),
        ("Yo<|im_end|>\n", True),
    ]


# These two do not write a prompt as the beginning of the conversation with its answer.
@pytest.mark.parametrize("name", sorted(set(TEMPLATES) - {"checked-alternation", "tools-json"}))
def test_parts_concatenate_to_rendered_text(name):
    template = ChatTemplate(source=TEMPLATES[name], bos_token="<s>", eos_token="</s>")
    messages = [USER, ANSWER]
    (parts,) = template.examples(messages)
    assert "".join(text for text, _ in parts) == template.render(messages)
    assert [is_answer for _, is_answer in parts] == [False, True]
    assert "Yo" in parts[1][0]


def test_rejects_template_that_changes_earlier_text():
    source = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(ValueError, match="does not write an answer after the prompt that asks"):
        ChatTemplate(source=source).examples([USER, ANSWER])


def test_each_answer_has_its_own_text_where_a_template_rewrites_earlier_ones():
    source = (
        "{% for m in messages %}{{ m.role[0] }}:"
        "{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}{{ m.content }}\n"
        "{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
    )
    asked = [{"role": "user", "content": "x"}, ANSWER, {"role": "user", "content": "y"}, ANSWER]
    assert ChatTemplate(source=source).examples(asked) == [
        [("u:x\na:", False), ("<think></think>Yo\n", True)],
        [("u:x\na:Yo\nu:y\na:", False), ("<think></think>Yo\n", True)],
    ]


@pytest.mark.parametrize(
    ("name", "end"),
    [("chatml", "<|im_end|>\n"), ("header-ids", "<|eot_id|>"), ("turns-model", "<end_of_turn>\n")],
)
def test_finds_answer_end(name, end):
    assert ChatTemplate(source=TEMPLATES[name], bos_token="<s>").answer_end() == end


def test_answer_end_is_empty_without_answers():
    assert ChatTemplate(source="{{ messages[0].content }}|").answer_end() == ""
    lines = "{% for message in messages %}{{ message.content + '\n\n' }}{% endfor %}"
    assert ChatTemplate(source=lines).answer_end() == ""


def test_default_template_has_answer_end():
    assert ChatTemplate().answer_end() == "\nEND\n"
    assert ChatTemplate().render([USER]) == "--user--\n Hi <b>\n\nthere \nEND\n"


def test_rejects_huge_template():
    with pytest.raises(ValueError, match="the chat template has 200,001 characters"):
        ChatTemplate(source="x" * (MAX_TEMPLATE + 1))
