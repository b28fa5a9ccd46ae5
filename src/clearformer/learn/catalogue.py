"""The chapters of the book that have exercises, in its order."""

from __future__ import annotations

from dataclasses import dataclass

from clearformer.learn import (
    bert,
    block,
    classifying,
    design,
    everything,
    generating,
    going_big,
    gpt2,
    heads,
    original,
    positions,
    queries,
    recommender,
    self_attention,
    sparse,
    transformer_xl,
)
from clearformer.learn.exercise import Exercise


@dataclass(frozen=True)
class Chapter:
    """A chapter: its number, title, page in docs/book, and exercises."""

    number: int
    title: str
    page: str
    exercises: tuple[Exercise, ...]


CHAPTERS = (
    Chapter(1, "Self-attention", "1-self-attention", self_attention.EXERCISES),
    Chapter(2, "Why self-attention works", "2-why-it-works", recommender.EXERCISES),
    Chapter(3, "Queries, keys, values and scaling", "3-queries-keys-values", queries.EXERCISES),
    Chapter(4, "Heads", "4-heads", heads.EXERCISES),
    Chapter(5, "The transformer block", "5-block", block.EXERCISES),
    Chapter(6, "Classifying", "6-classifying", classifying.EXERCISES),
    Chapter(7, "Positions", "7-positions", positions.EXERCISES),
    Chapter(8, "Generating", "8-generating", generating.EXERCISES),
    Chapter(9, "Design considerations", "9-design", design.EXERCISES),
    Chapter(10, "The original transformer", "10-original", original.EXERCISES),
    Chapter(11, "BERT", "11-bert", bert.EXERCISES),
    Chapter(12, "GPT-2", "12-gpt2", gpt2.EXERCISES),
    Chapter(13, "Transformer-XL", "13-transformer-xl", transformer_xl.EXERCISES),
    Chapter(14, "Sparse transformers", "14-sparse", sparse.EXERCISES),
    Chapter(15, "Going big", "15-going-big", going_big.EXERCISES),
    Chapter(16, "Sets, graphs, pictures", "16-everything", everything.EXERCISES),
)


def chapters() -> tuple[Chapter, ...]:
    """The chapters, in the order of the book."""
    return CHAPTERS


def find(number: str) -> Exercise:
    """The exercise of this number."""
    known = {each.number: each for chapter in CHAPTERS for each in chapter.exercises}
    if str(number) not in known:
        raise ValueError(f"there is no exercise {number!r}: known: {', '.join(known)}")
    return known[str(number)]
