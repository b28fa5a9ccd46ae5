"""The chat task: only answers are targets, and each error is one sentence."""

import json
from dataclasses import replace

import numpy as np
import pytest

import clearformer as cf
from clearformer.data import DataFolders, Table
from clearformer.data.rows import IGNORE
from clearformer.runs.run import Run
from clearformer.runs.start import starting_config
from clearformer.tasks import registry
from clearformer.tasks.chat import ChatTask, encode_conversations, require_writable
from clearformer.text import BytePairs, Bytes, Characters, train
from clearformer.text.chat_template import ChatTemplate

CHATML = (
    "{% for m in messages %}{{ '[' + m.role + ']' + m.content + '$' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"
)
SHORT = ChatTemplate(source=CHATML)


def messages(*texts):
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


def table(*conversations):
    return Table("c.jsonl", tuple(json.dumps(each) for each in conversations), None)


def learned(example):
    """The text that an example teaches."""
    return bytes(example.targets[example.targets != IGNORE].tolist()).decode()


def test_targets_are_answers_with_their_end_only():
    asked = table(messages("hi", "yo"), messages("a", "b", "c", "d"))
    one, two = encode_conversations(asked, SHORT, Bytes(), 99).examples
    assert bytes(one.tokens.tolist()) == b"[user]hi$[assistant]yo"
    assert learned(one) == "yo$"
    assert learned(two) == "b$d$"
    # Each target is the token after.
    assert np.array_equal(one.targets[-3:], np.frombuffer(b"yo$", dtype=np.uint8))


def test_long_conversations_are_cut_and_counted():
    asked = table(messages("hi", "yo"), messages("hi", "yo" * 99), messages("x" * 99, "yo"))
    encoded = encode_conversations(asked, SHORT, Bytes(), 30)
    assert (len(encoded.examples), encoded.cut, encoded.left_out) == (2, 2, 1)
    assert len(encoded.examples[1]) == 30
    with pytest.raises(ValueError, match="no answer begins within the first 5 tokens"):
        encode_conversations(asked, SHORT, Bytes(), 5)


def test_template_error_names_the_conversation():
    refusing = ChatTemplate(source="{{ raise_exception('no') }}")
    with pytest.raises(ValueError, match=r"c\.jsonl, conversation 1: the chat template refuses"):
        encode_conversations(table(messages("a", "b")), refusing, Bytes(), 99)


def test_special_tokens_of_a_template_are_single_tokens():
    spec = train("bpe", ["hi yo " * 50], 300).spec
    name = "<|stop|>"
    tokenizer = BytePairs(replace(spec, vocabulary=(*spec.vocabulary, name), specials=(name,)))
    template = ChatTemplate(source=CHATML.replace("'$'", f"'{name}'"))
    (example,) = encode_conversations(table(messages("hi", "yo")), template, tokenizer, 99).examples
    assert example.targets[-1] == tokenizer.specials[name]


def test_rejects_tokenizer_without_end_token():
    with pytest.raises(ValueError, match=r"answers end with '\\nEND\\n' in the chat template, but"):
        require_writable(ChatTemplate(), Characters.train(["abc"]))
    require_writable(ChatTemplate(), Bytes())
    prose = "THE END: a text as others, with lines and hyphens.\nTo be or not to be--\n"
    require_writable(ChatTemplate(), Characters.train([prose]))


# --- runs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A tiny generator of bytes that has seen no conversation."""
    folder = tmp_path_factory.mktemp("chat")
    (folder / "t.txt").write_text("abcdefgh ijkl. " * 60)
    cf.train(
        "modern-tiny", data=folder / "t.txt", out=folder / "base", steps=2, layers=1, width=32,
        heads=2, hidden=64, length=64, threads=1, quiet=True, batch_size=4,
    )  # fmt: skip
    names = ("Ann", "Bob", "Cid", "Dee", "Eva")
    rows = [messages(f"I am {n}{i}", f"Ahoy {n}") for i in range(6) for n in names]
    (folder / "c.jsonl").write_text("\n".join(json.dumps({"messages": row}) for row in rows))
    return folder


@pytest.fixture(scope="module")
def taught(base):
    (base / "short.jinja").write_text(CHATML)
    return cf.train(
        "chat", from_=base / "base", data=base / "c.jsonl", out=base / "taught", steps=150,
        learning_rate=0.005, threads=1, quiet=True, template=base / "short.jinja", evaluations=2,
    )  # fmt: skip


def test_model_learns_style_of_answers(taught):
    answer = taught.chat(messages("I am Bob7"), temperature=0, max_tokens=30)
    assert answer.startswith("Ahoy ")
    assert "$" not in answer
    streamed = taught.chat_stream(messages("I am Bob7"), temperature=0, max_tokens=30)
    assert "".join(token.text for token in streamed) == answer


def test_run_stores_chat_template(taught, base):
    opened = cf.load(base / "taught")
    assert opened.run_config.generation.chat_template.source == CHATML
    assert opened.run_config.data.form == "conversations"
    assert opened.chat(messages("hi"), max_tokens=3, seed=1) == taught.chat(
        messages("hi"), max_tokens=3, seed=1
    )


def test_evaluation_counts_answer_tokens_only(taught, base):
    report = taught.evaluate(base / "c.jsonl").report
    assert report.tokens == 30 * len("Ahoy Ann$")
    assert report.metrics["loss"] < 0.5
    assert "tokens of the answers in 30 conversations" in "\n".join(report.lines())
    assert taught.evaluate().metrics["perplexity"] >= 1


def test_resuming_gives_the_same_weights(base):
    ended = {}
    for name, steps in (("whole", [6]), ("halves", [3, 6])):
        for count in steps:
            _, config = starting_config("chat", base / "base")
            data = replace(config.data, source=str(base / "c.jsonl"))
            settings = replace(
                config.train, steps=count, epochs=None, threads=1, batch_size=2, seed=3,
                schedule=cf.config.Constant(),
            )  # fmt: skip
            config = replace(config, data=data, train=settings)
            run = Run(config, base / name, DataFolders(), resume=True, say=lambda _: None)
            list(run.events())
        ended[name] = run.model.state_dict()
    for key, tensor in ended["whole"].items():
        assert tensor.equal(ended["halves"][key]), key


def test_task_follows_data_form(base):
    _, config = starting_config("chat", base / "base")
    assert isinstance(registry.task_of_run(config), ChatTask)
    assert not isinstance(registry.task_of(config.model), ChatTask)
    batch, _ = registry.task_of_run(config).example(config, 2, (1, 1))
    assert cf.build(config.model).loss(batch)[0].isfinite()


def test_rejects_invalid_training_arguments(base, tmp_path):
    with pytest.raises(ValueError, match="chat teaches a trained model to answer: add --from RUN"):
        cf.train("chat", data=base / "c.jsonl", out=tmp_path / "x")
    with pytest.raises(ValueError, match=r"has no conversations: give --data a \.jsonl file"):
        cf.train("chat", from_=base / "base", data="enwik8", out=tmp_path / "x", quiet=True)
    (tmp_path / "bad.jinja").write_text("{% for %}")
    with pytest.raises(ValueError, match="the chat template cannot be read"):
        cf.train(
            "chat", from_=base / "base", data=base / "c.jsonl", out=tmp_path / "y", quiet=True,
            template=tmp_path / "bad.jinja",
        )  # fmt: skip
    with pytest.raises(ValueError, match="has no chat template, so it cannot answer messages"):
        cf.load(base / "base").chat(messages("hi"))


def test_rejects_invalid_chat_messages(taught):
    with pytest.raises(ValueError, match="so there is nothing to answer"):
        taught.chat(messages("hi", "yo"))
    with pytest.raises(ValueError, match="leave samples out"):
        taught.chat(messages("hi"), samples=2)
    with pytest.raises(ValueError, match=r"the prompt has .* tokens, but the context"):
        taught.chat(messages("x" * 100))
