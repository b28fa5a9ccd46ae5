"""Checks of the arguments of the Python API: texts or token ids, one or many, and keyword names."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from clearformer.did_you_mean import nearest

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
        raise ValueError(f"{name} is a list of {len(batch)} texts, but it must be {wanted}")
    return batch[0]


def _text(text: Any, name: str) -> Text:
    if isinstance(text, str):
        return text
    ids = _listed(text)
    if not ids or not all(map(_is_id, ids)):
        raise ValueError(f"{name} is {text!r:.60}, but it must be a string or a list of token ids")
    return [int(each) for each in ids]


def _listed(value: Any) -> list[Any] | None:
    """The items of a list, tuple, array, tensor, series or other iterable; None: it is none."""
    if isinstance(value, bytes | bytearray | dict) or not isinstance(value, Iterable):
        return None
    # Arrays and tensors: plain numbers instead of scalars of their own.
    return list(value.tolist() if hasattr(value, "tolist") else value)


def _is_id(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
