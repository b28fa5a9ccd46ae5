"""Accuracy on IMDb from scratch: ours, the source document's shape, an LSTM, linear models.

    CLEARFORMER_DATA=... python benchmarks/imdb.py [--minutes 60] [--only ngrams,pairs,linear]

Everyone learns from the official training part alone, nobody is pretrained, and the test part is
looked at once, at the end. The linear models are scikit-learn's logistic regression on TF-IDF of
words, and of words and pairs of words, and on words and pairs scaled by naive Bayes (NB-SVM).
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from contest import Contestant, Trained, data_places, train
from lstm import lstm

from clearformer import data
from clearformer.tasks.class_report import report
from clearformer.tasks.classification import predict

# A fiftieth of the training part is enough to watch a run whose settings are decided.
WATCHED = "--data imdb --validation-fraction 0.02"

CONTESTANTS = {
    "ngrams": Contestant(f"classifier-ngrams {WATCHED} --epochs 3"),
    "pairs": Contestant(f"classifier-pairs {WATCHED} --epochs 5"),
    "seed": Contestant(f"classifier-imdb {WATCHED}"),
    # What was tried for it on a tenth of the training part (docs/log.md), where its accuracy no
    # longer rose in the fourth epoch.
    "lstm": Contestant(
        f"classifier-imdb {WATCHED} --layers 1 --width 128 --pool mean --epochs 4 --batch-size 32 "
        "--optimizer adamw --train.learning-rate 1e-3",
        make=lstm,
    ),
}


def part(name: str) -> data.Table:
    corpus = data.corpus("imdb")
    assert isinstance(corpus, data.LabelledCorpus)
    return corpus.read(name, data_places())


def accuracy(trained: Trained) -> float:
    task, config = trained.run.task, trained.run.config
    names = data.label_names(part("train"))
    rows = data.encode_rows(part("test"), task.tokenizer, names)
    guesses = predict(trained.model, rows, config)
    return report(guesses, torch.from_numpy(rows.labels), names).accuracy


def linear(words_in_a_row: int) -> float:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    training, test = part("train"), part("test")
    count = TfidfVectorizer(sublinear_tf=True, min_df=3, ngram_range=(1, words_in_a_row))
    model = LogisticRegression(C=10, max_iter=1000)
    model.fit(count.fit_transform(training.texts), training.labels)
    return float(model.score(count.transform(test.texts), test.labels))


def naive_bayes() -> float:
    """NB-SVM with the loss of a logistic regression (Wang and Manning 2012)."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    training, test = part("train"), part("test")
    count = CountVectorizer(binary=True, min_df=2, ngram_range=(1, 2))
    features, positive = count.fit_transform(training.texts), np.array(training.labels) == "pos"
    for_it, against = (np.asarray(features[rows].sum(0))[0] + 1 for rows in (positive, ~positive))
    ratio = np.log(for_it / for_it.sum()) - np.log(against / against.sum())
    model = LogisticRegression(C=0.1, max_iter=1000)
    model.fit(features.multiply(ratio).tocsr(), positive)
    scaled = count.transform(test.texts).multiply(ratio).tocsr()
    return float(model.score(scaled, np.array(test.labels) == "pos"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default="linear,ngrams,pairs,seed,lstm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark-imdb"))
    asked = parser.parse_args()
    print("| | parameters | minutes | steps | accuracy |\n|---|---|---|---|---|")
    if "linear" in asked.only:
        print(f"| TF-IDF + logistic regression, words | | | | {linear(1):.4f} |", flush=True)
        print(f"| the same, words and pairs | | | | {linear(2):.4f} |", flush=True)
        print(f"| words and pairs by naive Bayes | | | | {naive_bayes():.4f} |", flush=True)
    for name, contestant in CONTESTANTS.items():
        if name in asked.only.split(","):
            trained = train(name, contestant, asked.minutes, asked.seed, asked.out)
            print(
                f"| {name} | {trained.parameters:,} | {trained.run.state.seconds / 60:.0f} "
                f"| {trained.steps:,} "
                f"| {accuracy(trained):.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
