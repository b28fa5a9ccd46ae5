"""Beam search: equal to transformers token for token, and to a search without a cache."""

import re

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from clearformer.builder import build
from clearformer.config import GenerationDefaults
from clearformer.generate.beam import Allowed, Beam, candidates, largest, search
from clearformer.inference.beam_state import TranslationBeams
from clearformer.inference.modes import inference_mode

LENGTHS = [9, 4, 1, 7, 6]
MOST = 16
START, END = 300, 0  # of the `marian` fixture


def found_by_transformers(theirs, tokens, attention_mask, beam, max_tokens=MOST, prompt=1):
    out = theirs.generate(
        tokens,
        attention_mask=attention_mask.long(),
        num_beams=beam.width,
        num_return_sequences=beam.best,
        length_penalty=beam.length_penalty,
        max_new_tokens=max_tokens,
        max_length=None,
        early_stopping=False,
        do_sample=False,
        bad_words_ids=[[theirs.config.pad_token_id]],
        output_scores=True,
        return_dict_in_generate=True,
    )
    end, pad = theirs.config.eos_token_id, theirs.config.pad_token_id
    found = []
    for row in out.sequences.tolist():
        row = row[prompt:]
        row = row[: row.index(end)] if end in row else row
        found.append(tuple(token for token in row if token != pad))
    scores = [None] * len(found) if beam.width == 1 else out.sequences_scores.tolist()
    return list(zip(found, scores, strict=True))


def found_by_us(model, config, tokens, attention_mask, beam, max_tokens=MOST):
    with inference_mode(model):
        growing = TranslationBeams(model, config, START, tokens, attention_mask)
        return search(
            growing,
            beam,
            eos_ids=(END,),
            max_tokens=max_tokens,
            defaults=GenerationDefaults(banned_ids=(START,)),
        )


@pytest.mark.parametrize("ending", [0.0, 2.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "beam",
    [
        Beam(width=4, best=4),
        Beam(width=3, best=2, length_penalty=0.0),
        Beam(width=2, length_penalty=2.0),
        Beam(width=5, best=3, length_penalty=-0.5),
    ],
)
def test_matches_transformers_beam_search(marian, sources, beam, seed, ending):
    theirs, ours, config = marian(seed, ending)
    tokens, attention_mask = sources(LENGTHS, seed)
    expected = found_by_transformers(theirs, tokens, attention_mask, beam)
    given = [
        each
        for several in found_by_us(ours, config, tokens, attention_mask, beam)
        for each in several
    ]
    assert [each.tokens for each in given] == [row for row, _ in expected]
    torch.testing.assert_close(
        torch.tensor([each.score for each in given]),
        torch.tensor([score for _, score in expected]),
        atol=1e-4,
        rtol=1e-4,
    )


def test_cases_cover_many_lengths(marian, sources):
    lengths = set()
    for seed in range(8):
        _, ours, config = marian(seed % 4, ending=2.0 + seed / 8)
        tokens, attention_mask = sources(LENGTHS, seed)
        for several in found_by_us(ours, config, tokens, attention_mask, Beam(best=4)):
            lengths |= {len(each.tokens) for each in several}
            assert all(each.ended or len(each.tokens) == MOST for each in several)
    assert len(lengths) > 5


@pytest.mark.parametrize("seed", range(3))
def test_result_does_not_depend_on_batch_or_padding(marian, sources, seed):
    _, ours, config = marian(seed)
    tokens, attention_mask = sources(LENGTHS, seed)
    beam = Beam(width=4, best=4)
    together = found_by_us(ours, config, tokens, attention_mask, beam)
    for row, length in enumerate(LENGTHS):
        alone = found_by_us(ours, config, tokens[row : row + 1, :length], None, beam)[0]
        assert [each.tokens for each in alone] == [each.tokens for each in together[row]]
        assert [e.score for e in alone] == pytest.approx([e.score for e in together[row]], abs=1e-4)


def uncached(model, config, source, beam, max_tokens=MOST):
    """The rules of the search in plain Python, with the whole model run for every hypothesis."""
    end, start = END, START

    def continuations(tokens):
        logits = model(source, torch.tensor([[start, *tokens]]))[0, -1]
        rows = logits.log_softmax(-1)
        rows[start] = float("-inf")
        return rows.tolist()

    running, finished = [((), 0.0)], []
    for length in range(1, max_tokens + 1):
        grown = [
            ((*tokens, token), total + score)
            for tokens, total in running
            for token, score in enumerate(continuations(tokens))
        ]
        grown = sorted(grown, key=lambda each: -each[1])[: 2 * beam.width]
        for place, (tokens, total) in enumerate(grown):
            if (tokens[-1] == end or length == max_tokens) and place < beam.width:
                finished.append((tokens, total / length**beam.length_penalty))
        finished = sorted(finished, key=lambda each: -each[1])[: beam.width]
        running = [each for each in grown if each[0][-1] != end][: beam.width]
        enough = len(finished) == beam.width
        if enough and running[0][1] / length**beam.length_penalty <= finished[-1][1]:
            break
    return finished[: beam.best]


@torch.no_grad()
def test_matches_search_without_cache(marian, sources):
    beam = Beam(width=3, best=3)
    for seed in range(3):
        _, ours, config = marian(seed)
        tokens, attention_mask = sources(LENGTHS, seed)
        for row, several in enumerate(found_by_us(ours, config, tokens, attention_mask, beam)):
            source = tokens[row : row + 1, : LENGTHS[row]]
            expected = uncached(ours, config, source, beam)
            ends = [each.tokens + ((END,) if each.ended else ()) for each in several]
            assert ends == [each for each, _ in expected]
            assert [e.score for e in several] == pytest.approx([s for _, s in expected], abs=1e-4)


# --- one stack -----------------------------------------------------------------------------


def test_decoder_only_beam_search_matches_transformers(small, scrambled, prompt_rows):
    """The same search with a decoder-only model, prompts padded on the left."""
    torch.manual_seed(0)
    config = small("gpt2", vocabulary=60, length=40)
    theirs = scrambled(
        GPT2LMHeadModel(
            GPT2Config(
                vocab_size=60, n_positions=40, n_embd=16, n_layer=2, n_head=4, n_inner=24,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
                pad_token_id=59,
            )
        )
    ).eval()  # fmt: skip
    ours = build(config)
    state = theirs.state_dict()
    found = {
        "embedding.token.weight": state["transformer.wte.weight"],
        "embedding.position.table.weight": state["transformer.wpe.weight"],
        "stack.norm.weight": state["transformer.ln_f.weight"],
        "stack.norm.bias": state["transformer.ln_f.bias"],
    }
    for i in range(2):
        for mine, other in {
            "attention_norm": "ln_1", "attention.project": "attn.c_attn",
            "attention.output": "attn.c_proj", "feed_forward_norm": "ln_2",
            "feed_forward.up": "mlp.c_fc", "feed_forward.down": "mlp.c_proj",
        }.items():  # fmt: skip
            weight = state[f"transformer.h.{i}.{other}.weight"]
            found[f"stack.blocks.{i}.{mine}.weight"] = weight.T if weight.dim() == 2 else weight
            found[f"stack.blocks.{i}.{mine}.bias"] = state[f"transformer.h.{i}.{other}.bias"]
    own = dict(ours.named_parameters())
    assert own.keys() == found.keys()
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(found[name])
    prompt = torch.randint(1, 59, (3, 6))
    attention_mask = torch.arange(6) >= torch.tensor([[0], [2], [5]])
    prompt = prompt.masked_fill(~attention_mask, 59)
    beam = Beam(width=4, best=2)
    expected = found_by_transformers(theirs, prompt, attention_mask, beam, max_tokens=12, prompt=6)
    with inference_mode(ours):
        growing = prompt_rows(ours, config, prompt, attention_mask)
        given = search(
            growing,
            beam,
            eos_ids=(0,),
            max_tokens=12,
            defaults=GenerationDefaults(banned_ids=(59,)),
        )
    assert [each.tokens for several in given for each in several] == [row for row, _ in expected]


@pytest.mark.parametrize("family", ["modern", "xl", "generator", "sparse"])
def test_beam_scores_match_uncached_model_for_every_family(family, small, scrambled, prompt_rows):
    """Beams do not affect each other: the score equals that of the whole sequence."""
    config = small(family, length=24)
    model = scrambled(build(config)).eval()
    prompt = torch.randint(config.vocabulary, (2, 4))
    with inference_mode(model):
        found = search(
            prompt_rows(model, config, prompt), Beam(width=3, best=3), eos_ids=(0,), max_tokens=6
        )
        for row, several in zip(prompt, found, strict=True):
            for each in several:
                tokens = torch.tensor([*each.tokens, *([0] if each.ended else [])])
                whole = torch.cat((row, tokens))[None]
                logits = model(whole[:, :-1])[0, 3:].log_softmax(-1)
                total = logits.gather(1, tokens[:, None]).sum()
                assert each.score == pytest.approx(float(total) / len(tokens), abs=1e-4)


# --- parts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 2047, 4096, 5001])
def test_largest_matches_topk(size):
    rows = torch.randn(6, size)
    for given, expected in zip(largest(rows, 7), rows.topk(7), strict=True):
        assert given.equal(expected)


def test_candidates_are_best_over_all_beams():
    logits, scores = torch.randn(6, 3000), torch.randn(2, 3)
    rows = logits.log_softmax(-1)
    rows[:, 5] = float("-inf")
    total = (rows.view(2, 3, -1) + scores[:, :, None]).flatten(1)
    ahead, place = total.topk(6)
    allow = Allowed(
        GenerationDefaults(banned_ids=(5,)), eos_ids=(0,), max_tokens=9, device=logits.device
    )
    given = candidates(allow(logits, 1), scores)
    torch.testing.assert_close(given[0], ahead)
    assert given[1].equal(place % 3000)
    assert given[2].equal(place // 3000)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 0}, "`beam` is 0, but it must be at least 1"),
        ({"width": 2, "best": 3}, "`best` is 3, but `beam` 2 returns at most 2: use a wider beam"),
        ({"best": 0}, "`best` is 0, but it must be at least 1"),
        (
            {"length_penalty": float("nan")},
            "`length_penalty` is nan, but it must be a finite",
        ),
    ],
)
def test_rejects_invalid_beam_settings(values, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Beam(**values)
