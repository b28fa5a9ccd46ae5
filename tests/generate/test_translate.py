"""Greedy translation: equal to transformers and to uncached decoding."""

from dataclasses import replace

import pytest
import torch

from clearformer import config as c
from clearformer.builder import build
from clearformer.generate.beam import Beam
from clearformer.generate.translate import Translator, greedy
from clearformer.inference.beam_state import TranslationBeams
from clearformer.inference.modes import inference_mode
from clearformer.text import train

LENGTHS = [9, 4, 1, 7, 6]
MOST = 16
START, END = 300, 0  # of the `marian` fixture


def found_by_us(model, config, tokens, attention_mask):
    with inference_mode(model):
        growing = TranslationBeams(model, config, START, tokens, attention_mask)
        return greedy(
            growing,
            end_id=END,
            max_tokens=MOST,
            defaults=c.GenerationDefaults(banned_ids=(START,)),
            beam=Beam(width=1),
        )


@pytest.mark.parametrize("activation", ["relu", "swish"])
@pytest.mark.parametrize("ending", [0.0, 2.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_greedy_matches_transformers(marian, sources, seed, ending, activation):
    theirs, ours, config = marian(seed, ending, activation_function=activation)
    tokens, attention_mask = sources(LENGTHS, seed)
    end, pad = theirs.config.eos_token_id, theirs.config.pad_token_id
    out = theirs.generate(
        tokens, attention_mask=attention_mask.long(), num_beams=1, do_sample=False,
        max_new_tokens=MOST, max_length=None, bad_words_ids=[[pad]],
    )  # fmt: skip
    expected = []
    for row in out[:, 1:].tolist():
        row = row[: row.index(end)] if end in row else row
        expected.append(tuple(token for token in row if token != pad))
    assert [each.tokens for each in found_by_us(ours, config, tokens, attention_mask)] == expected


@torch.no_grad()
def test_cached_uncached_and_unpadded_agree(marian, sources):
    for seed in range(4):
        _, ours, config = marian(seed)
        tokens, attention_mask = sources(LENGTHS, seed)
        for row, each in enumerate(found_by_us(ours, config, tokens, attention_mask)):
            source = tokens[row : row + 1, : LENGTHS[row]]
            alone = found_by_us(ours, config, source, None)[0]
            target, total = [START], 0.0
            while len(target) <= MOST and target[-1] != END:
                scores = ours(source, torch.tensor([target]))[0, -1].log_softmax(-1)
                scores[START] = float("-inf")
                target.append(int(scores.argmax()))
                total += float(scores.max())
            assert list(each.tokens) + ([END] if each.ended else []) == target[1:]
            assert alone.tokens == each.tokens
            assert each.score == pytest.approx(total / (len(target) - 1), abs=1e-4)


# --- texts ---------------------------------------------------------------------------------


@pytest.fixture
def translator(small, scrambled):
    tokenizer = train("characters", ["abcdefgh "])
    generation = c.GenerationDefaults(end_ids=(tokenizer.size,), start_id=tokenizer.size + 1)
    config = small("original", vocabulary=tokenizer.size + 2, length=20)
    return Translator(scrambled(build(config)), config, generation, tokenizer)


def test_texts_keep_their_order_and_do_not_depend_on_the_batch(translator):
    texts = ["abc", "h", "a b c d e f", "", "  fed cba  ", "gg"]
    for beam in (Beam(width=1), Beam(width=3, best=2)):
        found = translator.translate(texts, beam, batch_size=4, max_tokens=9)
        assert found == translator.translate(texts, beam, batch_size=4, max_tokens=9)
        assert [each.text for each in found[3]] == [""]
        for text, several in zip(texts, found, strict=True):
            alone = translator.translate([text.strip()], beam, max_tokens=9)[0]
            assert [each.tokens for each in alone] == [each.tokens for each in several]
            assert [e.score for e in alone] == pytest.approx([e.score for e in several], abs=1e-4)
            assert len(several) == (beam.best if text.strip() else 1)
            scores = [each.score for each in several]
            assert scores == sorted(scores, reverse=True)
            for each in several:
                assert each.text == translator.tokenizer.decode(each.tokens)


def test_rejects_source_longer_than_context(translator):
    with pytest.raises(ValueError, match=r"^text 2 \('aaaa.*has 26 tokens, but original-base "
                       "reads at most 20: cut it into sentences$"):  # fmt: skip
        translator.translate(["a", "a" * 25], Beam())
    with pytest.raises(ValueError, match=r"^the text \("):
        translator.translate(["a" * 25], Beam())


def test_seems_reversed_detects_text_of_target_language(translator):
    tokenizer = translator.tokenizer
    ids = {letter: tokenizer.encode(letter).tolist()[0] for letter in "abcdefgh"}
    generation = replace(
        translator.generation,
        typical_source_ids=tuple(ids[x] for x in "abc"),
        typical_target_ids=tuple(ids[x] for x in "fgh"),
    )
    known = replace(translator, generation=generation)
    assert known.seems_reversed("fgh d")
    assert not known.seems_reversed("abc f")
    assert not known.seems_reversed("f")
    assert not known.seems_reversed("")
    assert not translator.seems_reversed("fgh")
