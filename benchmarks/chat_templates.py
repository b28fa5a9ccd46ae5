"""Chat templates of a folder, rendered here and by transformers.

    pip download trl --no-deps && unzip -o trl-*.whl 'trl/chat_templates/*'
    python benchmarks/chat_templates.py trl/chat_templates

TRL's wheel has published templates of many models as files: Llama, Qwen, Gemma, Phi, DeepSeek and
others. Each renders five conversations with and without the beginning of an answer; what one side
refuses, the other has to refuse as well.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from clearformer.text.chat_template import ChatTemplate

Messages = list[dict[str, str]]
BOS, EOS = "<s>", "</s>"
USER = {"role": "user", "content": " Hi <b>\n\nthere "}
ANSWER = {"role": "assistant", "content": "Yo"}
THOUGHT = {"role": "assistant", "content": "<think>\nso\n</think>\n\nYes"}
SYSTEM = {"role": "system", "content": "Be kind. "}
CONVERSATIONS = [
    [USER],
    [USER, ANSWER],
    [USER, ANSWER, {"role": "user", "content": "“Ünï” & {{ 1 }}"}],
    [SYSTEM, USER],
    [SYSTEM, USER, THOUGHT, USER, ANSWER],
]


def ours(source: str, messages: Messages, prompt: bool) -> str | None:
    """The text, or None if the messages are refused."""
    template = ChatTemplate(source=source, bos_token=BOS, eos_token=EOS)
    try:
        return template.render(messages, add_generation_prompt=prompt)
    except ValueError:
        return None


def theirs(source: str, messages: Messages, prompt: bool) -> str | None:
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        texts, _ = render_jinja_template(
            [messages], chat_template=source, add_generation_prompt=prompt,
            bos_token=BOS, eos_token=EOS,
        )  # fmt: skip
    except Exception:  # of Jinja or of the template
        return None
    return str(texts[0])


def teaches(source: str) -> bool:
    """Whether `train chat` can tell its answers from the prompts."""
    try:
        return bool(ChatTemplate(source=source, bos_token=BOS).examples([USER, ANSWER]))
    except ValueError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    files = sorted(parser.parse_args().folder.glob("*.jinja"))
    different, untaught, texts = [], [], 0
    for path in files:
        source = path.read_text(encoding="utf-8")
        for messages, prompt in itertools.product(CONVERSATIONS, (False, True)):
            text = ours(source, messages, prompt)
            texts += text is not None
            if text != theirs(source, messages, prompt) and path.stem not in different:
                different.append(path.stem)
        untaught += [] if teaches(source) else [path.stem]
    print(f"{len(files) - len(different)} of {len(files)} templates render as in transformers,")
    print(f"in {texts} texts; different: {', '.join(different) or 'none'}")
    print(f"{len(untaught)} cannot be taught by train chat: {', '.join(untaught) or 'none'}")


if __name__ == "__main__":
    main()
