"""Made data for fine-tuning: who lives where, by a process with one right answer.

A person and a city are drawn for each sentence, "mary lives in paris .". Labels: people are B-PER,
cities B-LOC (two words: I-LOC). Pairs: two sentences, "warm" if both cities are in the south.
Questions: "who lives there ?" and "where ?"; "when ?" has no answer.
"""

import json
import random
from dataclasses import replace

import pytest

import clearformer as cf
from clearformer.config import Dropout
from clearformer.families import bert
from clearformer.text import train as train_tokenizer

PEOPLE = ["mary", "john", "susan", "peter", "anna", "paul"]
CITIES = ["paris", "rome", "new york", "oslo", "lima"]
SOUTH = {"paris", "rome", "lima"}


def draw_homes(count, seed=0, people=2):
    """Each a list of (person, city) with different people."""
    draw = random.Random(seed)
    return [
        [(who, draw.choice(CITIES)) for who in draw.sample(PEOPLE, people)] for _ in range(count)
    ]


def sentence(who, city):
    return f"{who} lives in {city} ."


def tagged(who, city):
    """Words and labels of a sentence."""
    first, *more = city.split()
    words = [who, "lives", "in", first, *more, "."]
    return words, ["B-PER", "O", "O", "B-LOC", *["I-LOC"] * len(more), "O"]


def conll(homes):
    lines = []
    for (who, city), *_ in homes:
        lines += [f"{word} {label}" for word, label in zip(*tagged(who, city), strict=True)] + [""]
    return "\n".join(lines)


def pairs_csv(homes):
    rows = ["text,second,label"]
    for pair in homes:
        label = "warm" if all(city in SOUTH for _, city in pair) else "cold"
        rows.append(f"{','.join(sentence(*each) for each in pair)},{label}")
    return "\n".join(rows)


def question(home, asked=0):
    """A question about one sentence: where, who, or when, which it does not say."""
    (who, city), *_ = home
    answers = [city, who, None]
    context = f"they say {sentence(who, city)}"
    found = answers[asked]
    listed = [] if found is None else [{"text": found, "answer_start": context.index(found)}]
    words = ("where ?", "who lives there ?", "when ?")[asked]
    return {"question": words, "context": context, "answers": listed}


def questions_jsonl(homes, kinds=2):
    """One question about each context, of the first `kinds` in turn."""
    return "\n".join(json.dumps(question(each, n % kinds)) for n, each in enumerate(homes))


@pytest.fixture(scope="session")
def homes():
    """The functions that make data."""
    return {
        "draw": draw_homes,
        "conll": conll,
        "pairs": pairs_csv,
        "questions": questions_jsonl,
        "question": question,
        "sentence": sentence,
    }


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    """A small BERT with random weights, saved as a run: a body to fine-tune."""
    texts = [" ".join((*PEOPLE, *CITIES, "they say lives in . when where who there ?"))] * 3
    tokenizer = train_tokenizer("wordpiece", texts, 120)
    config = replace(
        bert("tiny"), vocabulary=tokenizer.size, length=48, layers=2, width=32, heads=4,
        hidden=64, dropout=Dropout(),
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("bert") / "run"
    cf.Model(cf.build(config, seed=0), config, tokenizer).save(folder)
    return folder


@pytest.fixture(scope="session")
def finetune(tiny_bert):
    """Give that model a new head and train it."""

    def train(head, data, out, **options):
        given = {"steps": 60, "learning_rate": 3e-3, "batch_size": 16, "evaluations": 1}
        return cf.train(head, from_=tiny_bert, data=data, out=out, quiet=True, threads=1,
                        compile="off", **(given | options))  # fmt: skip

    return train
