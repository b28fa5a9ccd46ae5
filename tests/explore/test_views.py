"""Responses contain the numbers of the Python trace, for every family."""

import math

import numpy as np
import pytest
import torch

from clearformer import config as c
from clearformer.explore import views
from clearformer.explore.arrays import unpack
from clearformer.explore.stages import downscaled
from clearformer.explore.trace import trace
from clearformer.explore.trace_cache import TraceCache
from clearformer.http_server.errors import Problem

FAMILIES = ["generator", "gpt2", "bert", "classifier", "xl", "sparse", "modern"]
TEXT = "the cat sat on the mat"


def keep(loaded, id, text=TEXT, **settings):
    model = loaded(id)
    tokens = text if id != "original" else (text, "the dog sat")
    return TraceCache().add(model, tokens, settings)


@pytest.mark.parametrize("family", [*FAMILIES, "original"])
def test_responses_match_trace(loaded, family):
    cached = keep(loaded, family)
    whole = trace(cached.loaded.model, cached.tokens)
    answer = views.overview(cached)
    for part in whole.parts:
        weights = whole.get("weights", 1, part=part)  # (H, Q, K)
        head = views.attention(cached, 1, 1, "weights", part)
        np.testing.assert_array_equal(unpack(head["values"]), weights[1].numpy())
        assert (head["min"], head["max"]) == (float(weights[1].min()), float(weights[1].max()))
        thumbs = unpack(answer["thumbs"][part])[1]
        span = answer["thumbs"][part]["scale"][1]
        np.testing.assert_allclose(thumbs, downscaled(weights[None], 64)[0], atol=span / 255)
        i = 2
        row = views.query(cached, 1, 1, i, part)
        q, k = unpack(row["q"]), unpack(row["k"])
        raw, scaled, shown, shares = (
            unpack(row[name])
            for name in ("scores_raw", "scores_scaled", "scores_masked", "weights")
        )
        np.testing.assert_allclose((q * k).sum(-1), raw, atol=1e-5)
        np.testing.assert_allclose(unpack(row["products"]), q * k)
        np.testing.assert_allclose(scaled * row["scale"], raw, rtol=1e-6)
        bias = 0 if row["bias"] is None else unpack(row["bias"])
        seen = np.isfinite(shown)
        np.testing.assert_allclose(shown[seen], (scaled + bias)[seen], atol=1e-6)
        assert shares.sum() == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose(unpack(row["contributions"]).sum(0), unpack(row["output"]),
                                   atol=1e-5)  # fmt: skip
        np.testing.assert_array_equal(shares, weights[1, i].numpy())
        all_rows = views.whole_head(cached, 1, 1, part)
        np.testing.assert_array_equal(unpack(all_rows["weights"])[i], shares)
        np.testing.assert_array_equal(unpack(all_rows["output"])[i], unpack(row["output"]))
        assert len(answer["query_tokens"][part]) == weights.shape[1]
        assert len(answer["key_tokens"][part]) == weights.shape[2]


@pytest.mark.parametrize("family", [*FAMILIES, "original"])
def test_projection_is_x_times_w_plus_b(loaded, family):
    cached = keep(loaded, family)
    for part in cached.overview.parts:
        found = cached.layer(1).recorded[part, 1]
        for which in "qkv":
            last = found[which].shape[2] - 1
            told = views.projection(cached, 1, 1, last, which, 3, part)
            assert unpack(told["products"]).sum() + told["b"] == pytest.approx(
                told["value"], abs=1e-5
            )
            expected = {"q": "q_proj", "k": "k_proj", "v": "v"}[which]
            assert told["value"] == pytest.approx(float(found[expected][0, 1, last, 3]), abs=1e-4)
            assert told["turned"] == pytest.approx(float(found[which][0, 1, last, 3]), abs=1e-6)


def test_rejects_projection_of_memory_tokens(loaded):
    with pytest.raises(
        Problem, match="only the key and the value of a remembered token"
    ) as problem:
        views.projection(keep(loaded, "xl"), 0, 0, 0, "k", 0, None)
    assert problem.value.status == 409


def test_overview_includes_whole_text_of_segments(loaded):
    told = views.overview(keep(loaded, "xl"))
    assert "".join(token["text"] for token in told["text_tokens"]) == TEXT
    assert len(told["tokens"]) == 6
    assert views.overview(keep(loaded, "gpt2"))["text_tokens"] is None


def test_grouped_query_heads_are_reported(loaded):
    cached = keep(loaded, "modern")
    assert views.query(cached, 0, 1, 0, None)["group"] == {"key_head": 0, "of": 1}
    assert views.query(keep(loaded, "gpt2"), 0, 1, 0, None)["group"] is None


def test_logits_cover_whole_vocabulary(loaded):
    cached = keep(loaded, "gpt2")
    told = views.logits(cached, -1)
    logits = cached.overview.logits[-1]
    np.testing.assert_allclose(unpack(told["values"]), logits - logits.max(), atol=1e-6)
    assert unpack(told["values"]).max() == 0
    assert told["top"][0]["id"] == int(logits.argmax())
    assert len(told["top"]) == 200
    classes = views.logits(keep(loaded, "classifier"), -1)
    assert {each["text"] for each in classes["top"]} == {"negative", "positive"}


def test_bits_are_surprisal_of_next_token(loaded):
    cached = keep(loaded, "gpt2")
    bits = unpack(views.overview(cached)["bits"])
    assert math.isnan(bits[0])
    ids = cached.overview.input.tokens[0]
    expected = torch.nn.functional.cross_entropy(cached.overview.logits[:-1], ids[1:])
    assert np.mean(bits[1:]) * math.log(2) == pytest.approx(float(expected), rel=1e-5)
    assert views.overview(keep(loaded, "gpt2", mask="none"))["bits"] is None
    assert views.overview(keep(loaded, "bert"))["bits"] is None


def test_classifier_reports_class_probabilities(loaded):
    probs = views.overview(keep(loaded, "classifier"))["probs"]
    assert [each["label"] for each in probs] == ["negative", "positive"]
    assert sum(each["p"] for each in probs) == pytest.approx(1)


def test_nan_is_counted_by_layer_and_stage(loaded):
    rows = views.overview(keep(loaded, "nan"))["nonfinite"]
    assert rows[0] == {
        "part": "self", "layer": 1, "stage": "parameters", "count": 3, "nan": 3, "inf": 0,
    }  # fmt: skip
    stages = {(row["layer"], row["stage"]) for row in rows[1:]}
    assert (1, "weights") in stages
    assert all(layer == 1 for layer, _ in stages)
    assert views.overview(keep(loaded, "gpt2"))["nonfinite"] == []


def test_shapes_match_tensors(loaded):
    cached = keep(loaded, "gpt2")
    whole = trace(cached.loaded.model, cached.tokens)
    rows = {(row["part"], row["stage"]): row["shape"] for row in views.overview(cached)["shapes"]}
    for stage, tensor in whole.recorded["self", 0].items():
        if stage not in ("thumbs", "entropy", "previous", "first"):
            assert rows["self", stage] == list(tensor.shape[1:]), stage
    assert rows["self", "logits"] == list(whole.logits.shape)


def test_long_texts_are_pooled_but_queries_are_exact(loaded):
    cached = keep(loaded, "modern", "x" * 800)
    told = views.attention(cached, 0, 0, "weights", None)
    assert (told["rows"], told["cols"], told["pooled"]) == (800, 800, 2)
    assert told["values"]["shape"] == [400, 400]
    assert len(told["values"]["data"]) < 2**20
    assert views.query(cached, 0, 0, 700, None)["weights"]["shape"] == [800]
    with pytest.raises(Problem, match="all queries of a head take") as problem:
        views.whole_head(cached, 0, 0, None)
    assert problem.value.status == 413


def test_thumbnails_shrink_to_fit_limit(loaded, monkeypatch):
    monkeypatch.setattr(views, "MAX_RESPONSE_BYTES", 2048)
    told = views.overview(keep(loaded, "modern", "x" * 64))["thumbs"]["self"]
    assert told["shape"] == [2, 2, 16, 16]


def test_rejects_invalid_layers_heads_and_positions(loaded):
    cached = keep(loaded, "gpt2")
    for given, sentence in (
        ((9, 0, "weights", None), "layer is 9, but it must be from 0 to 1"),
        ((0, 9, "weights", None), "head is 9, but it must be from 0 to 1"),
        ((0, 0, "bias", None), "this model has no bias"),
        ((0, 0, "weights", "cross"), "there is no part 'cross'"),
    ):
        with pytest.raises(Problem, match=sentence):
            views.attention(cached, *given)
    with pytest.raises(Problem, match="i is 99, but there are tokens 0 to"):
        views.query(cached, 0, 0, 99, None)
    with pytest.raises(Problem, match="d is 8, but it must be from 0 to 7"):
        views.projection(cached, 0, 0, 0, "q", 8, None)


@pytest.mark.parametrize(
    "head",
    [c.Features(), c.TokenClassifier(), c.AnswerSpan(), c.NextSentence(), c.MultipleChoice()],
    ids=lambda head: type(head).__name__,
)
def test_head_without_verb_shows_no_scores(tiny, tmp_path, head):
    """Its outputs are not token scores, and must not be labelled with tokens."""
    tokenizer = tiny.tokenizer_of("wordpiece")
    config = tiny.config_of("bert", tokenizer, {"head": head, "segments": 2})
    tiny.write_run(tmp_path / "run", config, tiny.build(config), tokenizer)
    with tiny.serving(tmp_path) as server:
        library = server.library
        entry = library.entry("run")
        model = entry.worker.submit(lambda: library.load(entry, library.checkpoint(entry, None)))
        cached = TraceCache().add(model.result(), TEXT, {})
        assert views.overview(cached)["parts"]
        with pytest.raises(Problem, match="this model has no logits of tokens"):
            views.logits(cached, -1)


def test_tokens_after_the_first_segment_keep_their_positions(loaded):
    """Segments of 8: the third begins at 16, and its memory at 8."""
    answer = views.overview(keep(loaded, "xl", "the cat sat on the mat"))
    assert [token["i"] for token in answer["tokens"]] == list(range(16, 22))
    assert [token["i"] for token in answer["key_tokens"]["self"]] == list(range(8, 22))


def test_surprisal_knows_how_many_characters_it_covers(loaded):
    assert views.overview(keep(loaded, "modern", "猫" * 10))["characters"] == 10
    assert views.overview(keep(loaded, "bert"))["characters"] is None


def test_projection_says_what_changes_it(loaded):
    def changes(family, which):
        return views.projection(keep(loaded, family), 0, 0, -1, which, 0, None)["changed_by"]

    assert changes("xl", "q") == ["content_bias"]
    assert changes("xl", "k") == changes("gpt2", "q") == changes("modern", "v") == []
    assert changes("modern", "k") == [
        *(["norm"] if loaded("modern").config.query_key_norm else []), "rotation",
    ]  # fmt: skip


def test_typed_mask_is_recognised(loaded):
    answer = views.overview(keep(loaded, "bert", "the [MASK] sat"))
    assert [t["i"] for t in answer["tokens"] if t["id"] == answer["mask_id"]] == [2]
    assert views.overview(keep(loaded, "gpt2"))["mask_id"] is None
