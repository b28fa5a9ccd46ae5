"""Text classifiers: that of the first source document, and a stronger one without pretraining."""

from dataclasses import replace

from clearformer.config import (
    Biases,
    Classifier,
    Dropout,
    Full,
    Learned,
    ModelConfig,
    Neighbours,
    Ngrams,
    RMSNorm,
    Rotary,
)
from clearformer.families.sizes import numbers


def seed() -> ModelConfig:
    """A few post-norm blocks, averaged, then one linear layer.

    "At depth 6, with a maximum sequence length of 512"; width, heads and vocabulary are those
    of the experiment that the seed links to (pbloem/former).
    """
    return ModelConfig(
        name="classifier-imdb",
        family="classifier",
        vocabulary=50_000,
        length=512,
        layers=6,
        width=128,
        heads=8,
        hidden=512,
        residual="post",
        activation="relu",
        position=Learned(),
        patterns=(Full(),),
        head=Classifier(classes=2, pool="mean"),
        biases=Biases(attention=False),
        init="torch_default",
    )


def pairs() -> ModelConfig:
    """Words and pairs of words, one block, and much dropout.

    For small data sets such as twenty thousand reviews. It combines word pairs, as in linear models
    (Wang and Manning 2012), dropout of whole words, and little depth.
    """
    return ModelConfig(
        name="classifier-pairs",
        family="classifier",
        vocabulary=30_000,
        length=512,
        layers=1,
        width=128,
        heads=2,
        hidden=512,
        residual="pre",
        activation="squared_relu",
        position=Rotary(),
        patterns=(Full(),),
        head=Classifier(classes=2, pool="mean_max"),
        norm=RMSNorm(),
        query_key_norm=RMSNorm(),
        neighbours=Neighbours(buckets=2**18),
        biases=Biases(attention=False, attention_output=False, feed_forward=False),
        dropout=Dropout(token=0.5, embedding=0.3, residual=0.4),
        init="gpt2",
    )


def small() -> ModelConfig:
    """The same with a sixteenth of the buckets for pairs: for a few thousand texts.

    Nearly all the time of a step goes into the table of pairs, of which few texts use little.
    """
    return replace(pairs(), name="classifier-small", neighbours=Neighbours(buckets=2**14))


def ngrams() -> ModelConfig:
    """Scores of words and word pairs, scaled by naive Bayes, and a small transformer beside them.

    NB-SVM (Wang and Manning 2012) as a part of the model. On IMDb it is right by itself; the
    transformer makes its probabilities better (docs/results.md).
    """
    return replace(
        pairs(),
        name="classifier-ngrams",
        vocabulary=50_000,
        width=64,
        hidden=256,
        neighbours=None,
        ngrams=Ngrams(),
        dropout=Dropout(token=0.3, embedding=0.2, residual=0.3),
    )


CLASSIFIER = {"imdb": seed, "pairs": pairs, "small": small, "ngrams": ngrams}


def classifier(size: str = "imdb") -> ModelConfig:
    return numbers(CLASSIFIER, "classifier", size)()
