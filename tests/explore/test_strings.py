"""The sentences of the page in five languages: complete, and with the same placeholders."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from clearformer.explore import export

SOURCES = Path(__file__).parents[2] / "web" / "src"
ENGLISH = json.loads((SOURCES / "strings.en.json").read_text(encoding="utf-8"))
# Entries that are no sentences.
NOT_SENTENCES = {"command", "commands", "noModelCommand"}
# Signs of mathematics and keys, which are the same in all languages.
SIGNS = re.compile(r"\d+|[√÷×·−∞Σμεγβ←→↑↓½¼₁₂⁴%+=|·]")
# Words of the field that a language writes as in English.
SAME = {
    "de": "attention block code embedding embeddings loss pause prompt text token training",
    "es": "bits bytes causal checkpoint divisor embedding embeddings error logit logits tensor"
    " token tokens",
    "fr": "activation architectures attention axes bits causal checkpoint classes code compression"
    " embedding embeddings logit logits occlusion pages pause position positions rotation score"
    " scores segment source surprise token tokens validation",
    "zh": "logit logits token",
}
NAMES = {"alibi", "mlp", "softmax", "top"}  # top-k


def sentences(words, path=()):
    """(path, sentence) of every entry that is read by people."""
    if isinstance(words, str):
        yield ".".join(path), words
    elif isinstance(words, dict):
        for name, each in words.items():
            if name not in NOT_SENTENCES:
                yield from sentences(each, (*path, name))
    else:
        for n, each in enumerate(words):
            yield from sentences(each, (*path, str(n)))


WANTED = dict(sentences(ENGLISH))


def translated(language):
    path = SOURCES / f"strings.{language}.json"
    return dict(sentences(json.loads(path.read_text(encoding="utf-8"))))


def differing(language, of):
    """The paths at which the counts of something differ from those of the English sentence."""
    found = translated(language)
    return [
        f"{path}: {found[path]!r} for {sentence!r}"
        for path, sentence in WANTED.items()
        if path in found and Counter(of(sentence)) != Counter(of(found[path]))
    ]


def test_there_is_a_file_for_each_language():
    found = {path.name.split(".")[1] for path in SOURCES.glob("strings.*.json")}
    assert found == {"en", *export.LANGUAGES}


@pytest.mark.parametrize("language", export.LANGUAGES)
def test_translation_is_complete(language):
    found = translated(language)
    missing = [f"{path} ({WANTED[path]!r})" for path in WANTED if not found.get(path, "").strip()]
    assert not missing, (
        f"web/src/strings.{language}.json has no translation of {len(missing)} sentences of "
        f"strings.en.json: {'; '.join(missing)}"
    )
    extra = sorted(found.keys() - WANTED.keys())
    assert not extra, f"web/src/strings.{language}.json translates what is not there: {extra}"


@pytest.mark.parametrize("language", export.LANGUAGES)
def test_placeholders_and_signs_are_kept(language):
    """Numbers, signs of formulas and `{places}`; a sentence may use a name as often as English."""
    assert differing(language, re.compile(r"\{\w+\}").findall) == []
    assert differing(language, SIGNS.findall) == []


@pytest.mark.parametrize("language", export.LANGUAGES)
def test_sentences_are_translated(language):
    shared = NAMES | set(SAME[language].split())
    found = translated(language)
    same = [
        f"{path}: {sentence!r}"
        for path, sentence in found.items()
        if sentence == WANTED.get(path) and not words(sentence) <= shared
    ]
    assert same == [], f"not translated in web/src/strings.{language}.json"


def words(sentence):
    return set(re.findall(r"[^\W\d_]{3,}", re.sub(r"\{\w+\}", "", sentence).lower()))
