"""Chat templates come in and go out with a model, and transformers renders the same."""

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
def test_it_is_read_from_the_config_of_the_tokenizer(given, with_template):
    imported = import_checkpoint(with_template(chat_template=given))
    template = imported.generation.chat_template
    assert template.source == TEMPLATE
    assert template.render(MESSAGES, add_generation_prompt=True).endswith("user: hello\nassistant:")


def test_a_file_of_its_own_comes_first(with_template):
    path = with_template(chat_template="other")
    (path / "chat_template.jinja").write_text(TEMPLATE)
    assert import_checkpoint(path).generation.chat_template.source == TEMPLATE


def test_it_goes_out_and_transformers_renders_the_same(with_template, tmp_path):
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
def test_one_that_cannot_be_used_is_a_note(given, note, with_template):
    imported = import_checkpoint(with_template(chat_template=given))
    assert imported.generation.chat_template is None
    assert any(each.startswith(note) for each in imported.notes)


def test_none_is_none(folder):
    assert import_checkpoint(folder("gpt2")[0]).generation.chat_template is None
    assert import_checkpoint(folder("bert", "other")[0]).generation.chat_template is None
