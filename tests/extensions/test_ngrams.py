"""Scores of n-grams equal scikit-learn's naive Bayes and NB-SVM."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB

from clearformer.config import LogCountRatio, Uniform
from clearformer.core.model import Batch
from clearformer.extensions.ngrams import NgramScores

WORDS, BUCKETS, CLASSES = 12, 2**16, 3


def some_texts(count=80, seed=0):
    """Token ids from 1, right-padded with 0, the mask, and unevenly distributed classes."""
    draw = np.random.default_rng(seed)
    classes = draw.choice(CLASSES, count, p=(0.6, 0.3, 0.1))
    lengths = draw.integers(1, 9, count)
    tokens = np.zeros((count, 9), dtype=np.int64)
    for row, (own, length) in enumerate(zip(classes, lengths, strict=True)):
        tokens[row, :length] = 1 + (draw.integers(0, WORDS, length) * (1 + own)) % WORDS
    tokens = torch.from_numpy(tokens)
    return Batch(tokens, torch.from_numpy(classes), tokens > 0)


def counted(batch, longest=2, classes=CLASSES, evidence=LogCountRatio(min_texts=1), **options):
    scores = NgramScores(longest, BUCKETS, classes, **options)
    halves = batch.tokens[:50], batch.tokens[50:]
    parts = zip(halves, (batch.targets[:50], batch.targets[50:]), strict=True)
    scores.count((Batch(tokens, targets, tokens > 0) for tokens, targets in parts), evidence.of)
    return scores


def reference(batch, longest=2, min_df=1):
    """scikit-learn's features, and the row that each of them has in our table."""
    count = CountVectorizer(
        binary=True, ngram_range=(1, longest), min_df=min_df, token_pattern=r"\S+"
    )
    texts = [" ".join(str(each) for each in row if each) for row in batch.tokens.tolist()]
    features = count.fit_transform(texts)
    scores = NgramScores(longest, BUCKETS, 1)
    rows = []
    for name in count.get_feature_names_out():
        ids = [int(each) for each in name.split()]
        rows.append(int(scores.places(torch.tensor([ids]))[0, -1, len(ids) - 1]))
    assert len(set(rows)) == len(rows), "no two n-grams share a row"
    return features, rows


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_evidence_is_that_of_naive_bayes_for_each_class_and_the_rest(longest):
    batch = some_texts()
    scores = counted(batch, longest)
    features, rows = reference(batch, longest)
    for label in range(CLASSES):
        bayes = MultinomialNB(alpha=1.0).fit(features, batch.targets.numpy() == label)
        others, own = bayes.feature_log_prob_
        np.testing.assert_allclose(scores.evidence[rows, label], own - others, atol=1e-5)
    assert scores.evidence.count_nonzero() <= len(rows) * CLASSES, "no other row has any"


def test_rare_ngrams_have_no_evidence():
    batch = some_texts()
    scores = counted(batch, evidence=LogCountRatio(smoothing=0.5, min_texts=3))
    features, rows = reference(batch, min_df=3)
    others, own = MultinomialNB(alpha=0.5).fit(features, batch.targets == 1).feature_log_prob_
    np.testing.assert_allclose(scores.evidence[rows, 1], own - others, atol=1e-5)
    rare = torch.ones(BUCKETS, dtype=torch.bool)
    rare[rows] = False
    assert rare.sum() > BUCKETS - len(reference(batch)[1])
    assert not scores.evidence[rare].any()


def test_an_untrained_score_can_be_that_of_naive_bayes():
    batch = some_texts()
    scores = counted(batch, scale=0.5, weight=2.0)
    features, _ = reference(batch)
    bayes = MultinomialNB(fit_prior=False).fit(features, batch.targets == 2)
    odds = bayes.predict_log_proba(features) @ [-1, 1]
    with torch.no_grad():
        found = scores(batch.tokens, batch.attention_mask)[:, 2]
    np.testing.assert_allclose(found, odds, atol=1e-4)


def test_trained_to_the_end_it_is_nb_svm():
    batch = some_texts()
    wanted = (batch.targets == 0).double()
    first = torch.from_numpy(LogCountRatio(min_texts=1).of(*both_counts(batch)))
    scores = NgramScores(2, BUCKETS, 1, scale=0.7).double()
    scores.evidence.data = first
    features, rows = reference(batch)
    scaled = features @ np.diag(first[rows, 0].numpy())
    linear = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(scaled, wanted.numpy())

    optimizer = torch.optim.LBFGS(
        [scores.weight, scores.bias], max_iter=500, line_search_fn="strong_wolfe",
        tolerance_grad=1e-9, tolerance_change=1e-14,
    )  # fmt: skip

    def loss():
        optimizer.zero_grad()
        logits = scores(batch.tokens, batch.attention_mask)[:, 0]
        error = F.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
        # scikit-learn's penalty is on scale * weight.
        total = 0.5 * error + (scores.scale * scores.weight).square().sum() / 2
        total.backward()
        return total

    optimizer.step(loss)
    with torch.no_grad():
        found = scores(batch.tokens, batch.attention_mask)[:, 0]
    np.testing.assert_allclose(found, linear.decision_function(scaled), atol=1e-4)
    learned = scores.scale * scores.weight[rows, 0].detach()
    np.testing.assert_allclose(learned, linear.coef_[0], atol=1e-4)


def both_counts(batch):
    """Texts of class 0 and other texts with each n-gram, in plain Python."""
    scores = NgramScores(2, BUCKETS, 1)
    counts = np.zeros((2, BUCKETS, 1))
    for tokens, target in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        ids = torch.tensor([[each for each in tokens if each]])
        for row in set(scores.places(ids).flatten().tolist()) - {-1}:
            counts[int(target != 0), row] += 1
    return counts


def test_labels_that_do_not_exclude_each_other():
    batch = some_texts()
    labels = torch.stack([batch.targets == 0, batch.targets > 0], dim=-1).float()
    labels[3] = -100  # not known: counts nowhere
    scores = counted(Batch(batch.tokens, labels, batch.attention_mask), classes=2)
    known = [row for row in range(len(labels)) if row != 3]
    features, rows = reference(batch)
    bayes = MultinomialNB().fit(features[known], labels[known, 1])
    others, own = bayes.feature_log_prob_
    seen = np.asarray(features[known].sum(0))[0] > 0
    shift = (scores.evidence[rows, 1].numpy() - (own - others))[seen]
    np.testing.assert_allclose(shift, shift[0], atol=1e-5)  # unseen n-grams change the totals


def test_uniform_evidence_is_a_plain_linear_model():
    scores = counted(some_texts(), evidence=Uniform())
    assert (scores.evidence == 1).all()


def test_an_ngram_counts_once_and_padding_not_at_all():
    scores = counted(some_texts(), weight=1.0).requires_grad_(False)
    once = scores(torch.tensor([[3, 4, 5]]))
    row = scores.places(torch.tensor([[3, 4]]))[0, 1, 1]
    again = scores(torch.tensor([[3, 4, 5, 3, 4]]))
    extra = scores.scores(scores.places(torch.tensor([[5, 3]]))[:, 1, 1])
    torch.testing.assert_close(again, once + extra)
    assert row in scores.rows(torch.tensor([[3, 4]]))
    assert scores.scores(row).any()
    for tokens, mask in (([0, 3, 4, 5, 0], [0, 1, 1, 1, 0]), ([3, 4, 5, 9, 9], [1, 1, 1, 0, 0])):
        padded = scores(torch.tensor([tokens]), torch.tensor([mask], dtype=torch.bool))
        torch.testing.assert_close(padded, once)
    assert not torch.equal(scores(torch.tensor([[4, 3, 5]])), once), "order matters"


def test_shares_of_the_tokens_sum_to_the_score():
    batch = some_texts()
    scores = counted(batch, longest=3, weight=1.0).requires_grad_(False)
    shares = scores.shares(batch.tokens, batch.attention_mask)  # (B, T, C)
    whole = scores(batch.tokens, batch.attention_mask)
    torch.testing.assert_close(shares.sum(1) + scores.bias, whole, atol=1e-4, rtol=1e-4)
    pair = torch.tensor([[3, 4]])
    one, two, both = (
        scores.scores(scores.places(pair)[0, t, n]) for t, n in ((0, 0), (1, 0), (1, 1))
    )
    expected = torch.stack([one + both / 2, two + both / 2])
    torch.testing.assert_close(scores.shares(pair)[0], expected)
    torch.testing.assert_close(scores.shares(pair[:, :1])[0], one[None])  # shorter than an n-gram
    assert scores.shares(pair[:, :0]).shape == (1, 0, CLASSES)
