"""Exercises of chapter 1: self-attention without parameters, eq. 1 to eq. 3."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw


def raw_scores(x: Tensor) -> Tensor:
    return x @ x.transpose(-2, -1)  # (B, T, T)


def weights(raw: Tensor) -> Tensor:
    exponentials = (raw - raw.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)  # (B, T, T)


def self_attention(x: Tensor) -> Tensor:
    raw = x @ x.transpose(-2, -1)  # (B, T, T)
    return raw.softmax(dim=-1) @ x  # (B, T, E)


def _sequences() -> list[Case]:
    return [(draw(2, 5, 3),), (draw(1, 4, 6, seed=1),)]


def _scores() -> list[Case]:
    return [(draw(2, 5, 5),), (200 * draw(3, 4, 4, seed=1),)]


def _without_itself(x: Tensor) -> Tensor:
    raw = x @ x.transpose(-2, -1)
    own = raw.new_ones(raw.shape[-2:]).triu().tril().bool()
    return raw.masked_fill(own, float("-inf")).softmax(dim=-1) @ x


EXERCISES = (
    Exercise(
        number="1.1",
        title="Eq. 1: all dot products",
        task="x is a batch of sequences (B, T, E). Return the raw scores (B, T, T): entry i, j of "
        "a sequence is the dot product of its vectors i and j (eq. 1).",
        answer=raw_scores,
        cases=_sequences,
        hints=(
            "A matrix product computes a table of dot products: rows of the left matrix with "
            "columns of the right one.",
            "The rows are the vectors of x; the columns must be the same vectors, so the right "
            "matrix is x transposed, within each sequence.",
            "x.transpose(-2, -1) exchanges tokens and width and leaves the batch alone.",
        ),
        mistakes=(
            Mistake(
                lambda x: x.transpose(-2, -1) @ x,
                "this compares features, not tokens: the table is E x E. The order of the two "
                "factors decides which axis is summed over",
            ),
            Mistake(
                lambda x: (x * x).sum(dim=-1),
                "this is the dot product of each vector with itself, the diagonal of the table; "
                "eq. 1 wants every i with every j",
            ),
            Mistake(
                lambda x: F.normalize(x, dim=-1) @ F.normalize(x, dim=-1).transpose(-2, -1),
                "these are cosines: eq. 1 does not divide by the lengths of the vectors",
            ),
            Mistake(
                lambda x: x @ x.transpose(-2, -1) / x.shape[-1] ** 0.5,
                "these are scaled scores: the scale comes in chapter 3 (eq. 9), eq. 1 has none",
            ),
        ),
    ),
    Exercise(
        number="1.2",
        title="Eq. 2: softmax, and large scores",
        task="raw is a batch of scores (B, T, T). Return the weights of eq. 2, without torch's "
        "softmax: positive, each row of a table sums to one. Scores may be in the hundreds.",
        answer=weights,
        cases=_scores,
        hints=(
            "Eq. 2 is an exponential and a division; the sum runs over j, the last axis.",
            "exp(200) overflows in float32. Softmax does not change when the same number is taken "
            "from every score of a row.",
            "Take the largest score of each row: raw.amax(dim=-1, keepdim=True).",
        ),
        mistakes=(
            Mistake(
                lambda raw: raw.softmax(dim=-2),
                "the columns sum to one, not the rows: row i holds the weights of output i, so "
                "the sum runs over j, the last axis",
            ),
            Mistake(
                lambda raw: raw.exp() / raw.exp().sum(dim=-1, keepdim=True),
                "this is eq. 2, but exp overflows: a score of 200 gives infinity, and infinity by "
                "infinity is NaN. Take the largest score of each row first",
            ),
            Mistake(
                lambda raw: raw / raw.sum(dim=-1, keepdim=True),
                "the rows sum to one, but scores are negative too, so that these weights are not "
                "between 0 and 1: the exponential of eq. 2 is missing",
            ),
            Mistake(
                lambda raw: raw.softmax(dim=0),
                "the sum runs over the batch: sequences must not mix",
            ),
            Mistake(
                lambda raw: raw.sigmoid(),
                "a sigmoid looks at one score at a time; the weights of a row must share one",
            ),
        ),
    ),
    Exercise(
        number="1.3",
        title="Eq. 1 to 3: self-attention",
        task="x is (B, T, E). Return the outputs of self-attention (B, T, E): weighted averages of "
        "the vectors of x, with softmaxed dot products as weights.",
        answer=self_attention,
        cases=_sequences,
        hints=(
            "Put 1.1 and 1.2 one after the other; torch's softmax is allowed here.",
            "Eq. 3 is a matrix product: row i of the weights with all the vectors.",
            "(B, T, T) @ (B, T, E) is (B, T, E).",
        ),
        mistakes=(
            Mistake(
                lambda x: (x @ x.transpose(-2, -1)).softmax(dim=-1).transpose(-2, -1) @ x,
                "the weights are transposed: output i must use row i, which sums to one (or "
                "softmax was taken along the queries)",
            ),
            Mistake(
                lambda x: x @ x.transpose(-2, -1) @ x,
                "the softmax of eq. 2 is missing: this is a weighted sum, but no average",
            ),
            Mistake(
                lambda x: x.mean(dim=1, keepdim=True).expand_as(x),
                "every output is the plain average: the weights do not depend on the dot products",
            ),
            Mistake(
                _without_itself,
                "each token leaves itself out: eq. 3 sums over all j, j = i included",
            ),
            Mistake(
                lambda x: F.one_hot((x @ x.transpose(-2, -1)).argmax(-1), x.shape[1]).to(x) @ x,
                "each output is the one vector with the largest score: softmax is softer, every "
                "vector takes part",
            ),
        ),
    ),
)
