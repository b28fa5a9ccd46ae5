"""Chat templates are imported and exported, and transformers renders the same text."""

import pytest

import clearformer as cf
from clearformer.hub.importing import import_checkpoint

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role + ': ' + m.content | trim + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
MESSAGES = [{"role": "user", "content": " hello "}]


@pytest.fixture
def with_template(folder, edit):
    def make(**settings):
        path, _ = folder("gpt2")
        edit(path / "tokenizer_config.json", **settings)
        return path

    return make


@pytest.mark.parametrize(
    "given",
    [TEMPLATE, [{"name": "tools", "template": "x"}, {"name": "default", "template": TEMPLATE}]],
)
def test_reads_template_from_tokenizer_config(given, with_template):
    imported = import_checkpoint(with_template(chat_template=given))
    template = imported.generation.chat_template
    assert template.source == TEMPLATE
    assert template.render(MESSAGES, add_generation_prompt=True).endswith("user: hello\nassistant:")


def test_separate_file_takes_precedence(with_template):
    path = with_template(chat_template="other")
    (path / "chat_template.jinja").write_text(TEMPLATE)
    assert import_checkpoint(path).generation.chat_template.source == TEMPLATE


def test_exported_template_renders_same_in_transformers(with_template, tmp_path):
    from transformers import PreTrainedTokenizerFast

    path = with_template(chat_template=TEMPLATE)
    model = cf.load(path)
    model.save(tmp_path / "run")
    model = cf.load(tmp_path / "run")
    model.export(tmp_path / "out")
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path / "out")
    rendered = theirs.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    ours = model.run_config.generation.chat_template
    assert rendered == ours.render(MESSAGES, add_generation_prompt=True)
    assert cf.load(tmp_path / "out").run_config.generation.chat_template == ours
    model.export(tmp_path / "one.safetensors", to="safetensors")
    assert cf.load(tmp_path / "one.safetensors").run_config.generation.chat_template == ours


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ("{% for %}", "left out, its chat template: the chat template cannot be read"),
        (3, "left out, its chat template: it is 3, but it must be a text"),
        ("x" * 200_001, "left out, its chat template: the chat template has 200,001 characters"),
    ],
)
def test_unusable_template_becomes_a_note(given, note, with_template):
    imported = import_checkpoint(with_template(chat_template=given))
    assert imported.generation.chat_template is None
    assert any(each.startswith(note) for each in imported.notes)


def test_missing_template_is_none(folder):
    assert import_checkpoint(folder("gpt2")[0]).generation.chat_template is None
    assert import_checkpoint(folder("bert", "other")[0]).generation.chat_template is None
