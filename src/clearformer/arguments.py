"""Checks of the arguments of the Python API: texts or token ids, one or many; numbers; keywords.

In messages the names of parameters are in backticks; the command line shows them as flags.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from clearformer.did_you_mean import nearest

Weights = Literal["float32", "int8", "int4"]  # the forms of a model's weights for inference
# How BLEU splits a text into words; none: at spaces, for texts that are tokenized already.
BleuTokenize = Literal["13a", "intl", "char", "none"]
Text = str | Sequence[int]  # a string, or the token ids of one text

P = ParamSpec("P")
R = TypeVar("R")


def check_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that an unknown keyword raises ValueError with the nearest name."""
    known = [
        name
        for name, each in inspect.signature(function).parameters.items()
        if name != "self" and each.kind is not inspect.Parameter.VAR_KEYWORD
    ]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        require_known(function.__name__, kwargs, known)
        return function(*args, **kwargs)

    return checked


def require_known(function: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise ValueError if `function` has no parameter of a given name."""
    for name in given:
        if name not in known:
            raise ValueError(f"{function} has no parameter {name!r}: {nearest(name, known)}")


def as_batch(texts: Any, name: str = "texts") -> tuple[list[Text], bool]:
    """A list of texts, and whether a single one was given.

    A text is a string or a sequence of token ids (a list, an array or a tensor of integers).
    """
    if isinstance(texts, str):
        return [texts], True
    several = _listed(texts)
    if several is None:
        wanted = "a string, a list of token ids, or a list of either"
        raise ValueError(f"{name} is {texts!r:.60}, but it must be {wanted}")
    if several and all(map(_is_id, several)):
        return [[int(each) for each in several]], True
    return [_text(each, f"{name}[{place}]") for place, each in enumerate(several)], False


def as_text(text: Any, name: str = "text") -> Text:
    """One text: a string, or a list of token ids."""
    if isinstance(text, str):
        return text
    batch, single = as_batch(text, name)
    if not single:
        wanted = "one text: a string, or a list of token ids"
        count = f"{len(batch)} text{'' if len(batch) == 1 else 's'}"
        raise ValueError(f"{name} is a list of {count}, but it must be {wanted}")
    return batch[0]


def as_text_pairs(texts: Any, single: bool) -> list[tuple[str, str]] | None:
    """Pairs of texts, from a list of them, or if `single` from one pair; None: no pairs."""

    def is_pair(value: Any) -> bool:
        strings = isinstance(value, tuple) and all(isinstance(each, str) for each in value)
        return strings and len(value) == 2

    if single and is_pair(texts):
        return [texts]
    if isinstance(texts, list) and texts and all(map(is_pair, texts)):
        return list(texts)
    return None


def as_sentences(texts: Any) -> list[str | list[str]]:
    """Texts to label: strings, or lists of words."""
    if isinstance(texts, str):
        return [texts]
    several = _listed(texts)
    if several is None:
        raise ValueError(f"texts is {texts!r:.60}, but it must be a string or a list of them")
    found: list[str | list[str]] = []
    for place, each in enumerate(several):
        words = [each] if isinstance(each, str) else _listed(each)
        split = not isinstance(each, str)
        if words is None or not all(isinstance(w, str) and (w.strip() or not split) for w in words):
            wanted = "a string, or a list of words that are not empty"
            raise ValueError(f"texts[{place}] is {each!r:.60}, but it must be {wanted}")
        found.append(words if split else each)
    return found


def as_questions(questions: Any, contexts: Any) -> list[tuple[str, str]]:
    """Each question with its context; one context may serve all of them."""
    require_texts("questions", questions)
    require_texts("contexts", contexts)
    asked = [questions] if isinstance(questions, str) else list(questions)
    read = [contexts] * len(asked) if isinstance(contexts, str) else list(contexts)
    if len(asked) != len(read):
        counts = f"there are {len(asked)} questions and {len(read)} contexts"
        raise ValueError(f"{counts}: give one context for all, or one for each question")
    return list(zip(asked, read, strict=True))


def _text(text: Any, name: str) -> Text:
    if isinstance(text, str):
        return text
    ids = _listed(text)
    if not ids or not all(map(_is_id, ids)):
        raise ValueError(f"{name} is {text!r:.60}, but it must be a string or a list of token ids")
    return [int(each) for each in ids]


def _listed(value: Any) -> list[Any] | None:
    """The items of a list, array, tensor, series or other iterable; None if it is not iterable."""
    # Arrays and tensors give plain numbers instead of scalar objects.
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str | bytes | bytearray | dict) or not isinstance(value, Iterable):
        return None
    return list(value)


def _is_id(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def require_int(name: str, value: Any, low: int | None = None, high: int | None = None) -> None:
    """Raise ValueError if a value is not an integer, or is below `low` or above `high`."""
    if not _is_id(value):
        raise ValueError(f"`{name}` is {value!r:.60}, but it must be a whole number")
    _require_range(name, value, low, high)


def require_number(
    name: str, value: Any, low: float | None = None, high: float | None = None
) -> None:
    """Raise ValueError if a value is not a finite number, or is below `low` or above `high`."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"`{name}` is {value!r:.60}, but it must be a finite number")
    _require_range(name, value, low, high)


def _require_range(name: str, value: Any, low: float | None, high: float | None) -> None:
    if low is not None and value < low:
        raise ValueError(f"`{name}` is {value!r:.60}, but it must be at least {low:,}")
    if high is not None and value > high:
        raise ValueError(f"`{name}` is {value!r:.60}, but it must be at most {high:,}")


def require_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise ValueError if a value is not one of these."""
    choices = list(choices)
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"`{name}` is {value!r:.60}, but it must be one of {', '.join(choices)}")


def require_texts(name: str, values: Any) -> None:
    """Raise ValueError if a value is neither a string nor a list of strings."""
    listed = [values] if isinstance(values, str) else _listed(values)
    if listed is None or not all(isinstance(each, str) for each in listed):
        raise ValueError(f"`{name}` is {values!r:.60}, but it must be a string or a list of them")


def as_path(name: str, value: Any) -> Path:
    """A path; ValueError for anything else, and for an empty one."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError(f"`{name}` is {value!r:.60}, but it must be the path of a folder or file")
    return Path(os.path.expanduser(value))
