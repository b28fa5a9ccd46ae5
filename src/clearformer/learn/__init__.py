"""Exercises of the book, and a judge that names the mistake.

    from clearformer import learn

    learn.chapters()                   # what there is
    learn.check("1.2", my_weights)     # is it right, and if not, what is wrong?
    learn.hint("1.2")                  # three hints, one at a time
    learn.solution("1.2")              # only when asked

`clearformer learn` does the same from the command line.
"""

from clearformer.learn.catalogue import Chapter, chapters
from clearformer.learn.exercise import Exercise, Mistake
from clearformer.learn.judge import Verdict
from clearformer.learn.session import check, hint, solution

__all__ = [
    "Chapter",
    "Exercise",
    "Mistake",
    "Verdict",
    "chapters",
    "check",
    "hint",
    "solution",
]
