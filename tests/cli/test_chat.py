"""`clearformer chat`: answers, commands, files and errors."""

import io
import json
import signal
import sys

import pytest

from clearformer.cli import chat
from clearformer.text.chat_template import ChatTemplate


@pytest.fixture
def chat_run(run, folder):
    """The generator with a chat template."""
    from dataclasses import replace

    import clearformer as cf

    out = folder / "chatting"
    if not out.exists():
        model = cf.load(run)
        config = model.run_config
        template = ChatTemplate(source="{{ messages[-1].content }}|")
        generation = replace(config.generation, chat_template=template)
        model._run_config = replace(config, generation=generation)
        model.save(out)
    return str(out)


@pytest.fixture
def typed(monkeypatch):
    def type_lines(*lines):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))

    return type_lines


def test_answers_one_message(clearformer, chat_run):
    said = clearformer("chat", chat_run, "12 green", "--max-tokens", "10", "--temperature", "0")
    assert said.code == 0
    assert len(said.out.encode()) >= 10
    assert said.out.endswith("\n")


def test_conversation_with_commands(clearformer, chat_run, typed, tmp_path):
    path = tmp_path / "talk.json"
    typed(
        "1 g",
        "/system be nice",
        "",
        "2 g",
        f"/save {path}",
        "/nope",
        "/save",
        "/reset",
        "/quit",
        "x",
    )
    said = clearformer("chat", chat_run, "--max-tokens", "5", "--seed", "2")
    assert said.code == 0
    saved = json.loads(path.read_text())["messages"]
    assert [message["role"] for message in saved] == [
        "system", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert [message["content"] for message in saved[:2]] == ["be nice", "1 g"]
    assert said.out == f"{saved[2]['content']}\n{saved[4]['content']}\n"
    assert f"note: 5 messages are in {path}" in said.err
    assert "note: there is no command /nope" in said.err
    assert "note: /save needs the name of a file" in said.err
    assert "note: a new conversation" in said.err


def test_saved_conversation_can_be_continued(clearformer, chat_run, typed, tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    typed("1 g", f"/save {first}")
    clearformer("chat", chat_run, "--max-tokens", "5")
    typed("2 g", f"/save {second}")
    said = clearformer("chat", chat_run, "--max-tokens", "5", "--conversation", str(first))
    assert said.code == 0
    before, after = (json.loads(each.read_text())["messages"] for each in (first, second))
    assert after[:2] == before
    assert len(after) == 4


class Terminal(io.StringIO):
    """Lines from a terminal; an empty one is Ctrl-C at the prompt."""

    def isatty(self):
        return True

    def readline(self):
        line = super().readline()
        if line == "\n":
            signal.raise_signal(signal.SIGINT)
        return line


def test_ctrl_c_keeps_the_conversation(clearformer, chat_run, tmp_path, monkeypatch):
    """Ctrl-C in an answer keeps what was written of it, and one at the prompt keeps all."""
    path, write, parts = tmp_path / "talk.json", chat.write, []

    def interrupted(text):
        write(text)
        if text not in ("> ", "\n"):
            parts.append(text)
            if len(parts) == 3:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(chat, "write", interrupted)
    monkeypatch.setattr(sys, "stdin", Terminal(f"1 g\n\n2 g\n/save {path}\n"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        said = clearformer("chat", chat_run, "--max-tokens", "9", "--temperature", "1")
    finally:
        signal.signal(signal.SIGINT, before)
    assert said.code == 0, said.err
    saved = json.loads(path.read_text())["messages"]
    assert [message["role"] for message in saved] == ["user", "assistant"] * 2
    answers = [saved[1]["content"], saved[3]["content"]]
    assert "".join(parts) == "".join(answers)
    assert answers[0].startswith("".join(parts[:3]))
    assert "note: the answer was stopped; the conversation is kept" in said.err
    assert "note: the conversation is kept; /quit or Ctrl-D ends it" in said.err


def test_too_long_message_prints_note(clearformer, chat_run, typed):
    typed("x" * 100, "1 g")
    said = clearformer("chat", chat_run, "--max-tokens", "5")
    assert said.code == 0
    assert "note: the prompt has" in said.err


def test_rejects_invalid_arguments(clearformer, run, chat_run, tmp_path):
    said = clearformer("chat", run, "hi")
    assert said.code == 2
    assert "has no chat template, so it cannot answer messages" in said.err
    said = clearformer("chat", chat_run, "hi", "--top-p", "3")
    assert said.code == 2
    assert "--top-p is 3" in said.err
    (tmp_path / "x.json").write_text("{}")
    said = clearformer("chat", chat_run, "--conversation", str(tmp_path / "x.json"))
    assert said.code == 2
    assert "must be a list of messages" in said.err
