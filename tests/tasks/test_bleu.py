"""BLEU and chrF equal sacrebleu's, with its signatures."""

import builtins

import pytest
import sacrebleu

from clearformer.tasks.bleu import overlap

GIVEN = ["a man rides a brown horse .", "two dogs run", "a cat"]
WANTED = ["a man is riding a brown horse .", "two dogs run", "the cat sleeps"]


def test_matches_sacrebleu():
    found = overlap(GIVEN, WANTED)
    assert found.bleu == pytest.approx(sacrebleu.corpus_bleu(GIVEN, [WANTED]).score)
    assert found.chrf == pytest.approx(sacrebleu.corpus_chrf(GIVEN, [WANTED]).score)
    assert found.exact == pytest.approx(1 / 3)
    assert found.sentences == 3
    assert "case:mixed" in found.bleu_signature
    assert f"version:{sacrebleu.__version__}" in found.chrf_signature


def test_lower_cased_and_tokenized_as_by_sacrebleu():
    upper = [text.title() for text in GIVEN]
    found = overlap(upper, WANTED, "intl")
    same = {"lowercase": True, "tokenize": "intl"}
    assert found.bleu < found.bleu_lowercase == overlap(GIVEN, WANTED, "intl").bleu
    assert found.bleu_lowercase == sacrebleu.corpus_bleu(upper, [WANTED], **same).score
    assert "case:lc" in found.bleu_lowercase_signature
    assert "tok:intl" in found.bleu_lowercase_signature


def test_texts_that_are_tokenized_already():
    given, wanted = ["a well-known man , sitting"], ["a well-known man , standing there"]
    found = overlap(given, wanted, "none")
    assert found.bleu == sacrebleu.corpus_bleu(given, [wanted], tokenize="none").score
    assert "tok:none" in found.bleu_signature


def test_missing_sacrebleu_is_reported(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("sacrebleu"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"which is not installed: pip install sacrebleu$"):
        overlap(GIVEN, WANTED)
