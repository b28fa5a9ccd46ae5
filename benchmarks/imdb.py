"""Accuracy on IMDb from scratch: ours, the source document's shape, an LSTM, two linear models.

    CLEARFORMER_DATA=... python benchmarks/imdb.py [--minutes 60] [--only pairs,seed,lstm,linear]

Everyone learns from the official training part alone, nobody is pretrained, and the test part is
looked at once, at the end. The linear models are scikit-learn's logistic regression on TF-IDF of
words, and of words and pairs of words.
"""

import argparse
from pathlib import Path

import torch
from contest import Contestant, Trained, data_places, train
from lstm import lstm

from clearformer import data
from clearformer.tasks.class_report import report
from clearformer.tasks.classification import predict

# A fiftieth of the training part is enough to watch a run whose settings are decided.
WATCHED = "--data imdb --validation-fraction 0.02"

CONTESTANTS = {
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default="linear,pairs,seed,lstm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark-imdb"))
    asked = parser.parse_args()
    print("| | parameters | minutes | steps | accuracy |\n|---|---|---|---|---|")
    if "linear" in asked.only:
        print(f"| TF-IDF + logistic regression, words | | | | {linear(1):.4f} |", flush=True)
        print(f"| the same, words and pairs | | | | {linear(2):.4f} |", flush=True)
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
