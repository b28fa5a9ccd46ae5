"""Parser of a command's words: tyro, with each error as one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import singledispatch
from typing import Any, TypeVar, get_args, get_type_hints

import tyro

# tyro offers its errors as values in this module only; pyproject.toml allows the releases that
# have it. Without it, sentences would have to be cut out of framed text.
from tyro._errors import (
    BadValue,
    InstantiationFailure,
    InvalidChoice,
    MissingArgs,
    ParseErrorEvent,
    UnrecognizedArgs,
    on_parse_error,
)

from clearformer.cli.overrides import given
from clearformer.cli.usual_spellings import USUAL
from clearformer.config.settings import ALIASES, paths
from clearformer.config.settings import spelled as name
from clearformer.did_you_mean import closest

T = TypeVar("T")
(POSITIONAL,) = get_args(tyro.conf.Positional[str])[1:]  # what marks an argument without a flag
# What a value must be, by the name that the parser gives to its type.
TYPES = {
    "INT": "a whole number",
    "FLOAT": "a number",
    "STR": "a text",
    "PATH": "a path",
    "{None}": "none",
    "{True,False}": "True or False",
}


def read(
    verb: type[T],
    words: Sequence[str],
    program: str,
    *,
    default: T | None = None,
    config: Sequence[Any] = (tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands),
    registry: Any = None,
) -> T:
    """Parse a command from its words; ValueError for invalid ones."""
    flags = _flags(verb) if default is None else [*paths(default), *ALIASES]
    options: dict[str, Any] = {} if default is None else {"default": default}
    with on_parse_error(_refuse(words, [f"--{flag}" for flag in flags])):
        return tyro.cli(
            verb, prog=program, args=words, config=tuple(config), registry=registry, **options
        )


def _flags(verb: Any) -> list[str]:
    """The flags of a command, with those of a group of settings in it."""
    found = []
    hints = get_type_hints(verb if isinstance(verb, type) else type(verb), include_extras=True)
    for field in fields(verb):
        if POSITIONAL in getattr(hints[field.name], "__metadata__", ()):
            continue
        group = field.default if is_dataclass(field.default) else None
        found += [name(field.name)] if group is None else _flags(group)
    return found


def _refuse(words: Sequence[str], flags: Sequence[str]) -> Callable[[ParseErrorEvent], None]:
    def refuse(event: ParseErrorEvent) -> None:
        text = sentence(event, words, flags)
        if text is not None:
            raise ValueError(text)

    return refuse


@singledispatch
def sentence(event: ParseErrorEvent, words: Sequence[str], flags: Iterable[str]) -> str | None:
    """The error in a command's words; None if the parser's own message is to be used."""
    return None


@sentence.register
def _(event: UnrecognizedArgs, words: Sequence[str], flags: Iterable[str]) -> str:
    word = event.tokens[0].partition("=")[0]
    see = f"see {event.prog} --help"
    if not word.startswith("-"):
        return f"{_verb(event)} does not take {word!r}: quote a text with spaces, or {see}"
    guess = _nearest_flag(word, [*flags, "--help"], USUAL.get(_verb(event), {}))
    return f"{_verb(event)} has no flag {word}: {f'did you mean {guess}?' if guess else see}"


def _nearest_flag(word: str, flags: Sequence[str], usual: Mapping[str, str]) -> str | None:
    """The most similar flag, by the end of its path; never what was typed.

    `usual` are flags of other tools, with the ones that they stand for.
    """
    ends = [f"--{flag[2:].rpartition('.')[2]}" for flag in flags]
    short = {end: flag for end, flag in zip(ends, flags, strict=True) if ends.count(end) == 1}
    guess = closest(word, [*short, *flags, *usual])
    guess = usual.get(guess or "", guess)
    if guess is None or guess == word:
        return None
    return next((end for end, flag in short.items() if guess in (end, flag)), guess)


@sentence.register
def _(event: MissingArgs, words: Sequence[str], flags: Iterable[str]) -> str:
    missing = ", ".join(_shown(each.arg) for each in event.missing_arguments)
    first = event.missing_arguments[0].arg.field
    about = first.helptext() if callable(first.helptext) else first.helptext
    return f"{_verb(event)} needs {missing}: {_first_sentence(about)}; see {event.prog} --help"


@sentence.register
def _(event: InvalidChoice, words: Sequence[str], flags: Iterable[str]) -> str:
    choices = ", ".join(event.choices)
    return f"{_shown(event.argument)} is {event.value!r}, but it must be one of {choices}"


@sentence.register
def _(event: BadValue, words: Sequence[str], flags: Iterable[str]) -> str:
    flag = _shown(event.argument)
    if event.reason == "too_few_values":
        return f"{flag} needs a value: {_wanted(event.argument)}"
    return f"{flag} cannot be set here: leave it out"


@sentence.register
def _(event: InstantiationFailure, words: Sequence[str], flags: Iterable[str]) -> str:
    if event.argument is None:
        return event.message  # of a setting that checks itself
    flag = _shown(event.argument)
    value = given(words, flag)
    got = "" if value is None else f" is {value!r:.200}, but it"
    return f"{flag}{got} must be {_wanted(event.argument)}"


def _verb(event: ParseErrorEvent) -> str:
    return event.prog.removeprefix("clearformer ")


def _shown(argument: Any) -> str:
    """An argument as it is typed: `--flag`, or the name of a positional one in capitals."""
    typed = str(argument.lowered.name_or_flags[-1])
    return typed if typed.startswith("-") else typed.split(".")[-1].upper()


def _wanted(argument: Any) -> str:
    types = str(argument.lowered.metavar).split("|")
    if len(types) == 1 and types[0].startswith("{") and types[0] not in TYPES:
        return f"one of {types[0].strip('{}').replace(',', ', ')}"
    # "none" comes last, since it is rarely meant.
    return " or ".join(sorted((TYPES.get(each, each) for each in types), key="none".__eq__))


def _first_sentence(text: str | None) -> str:
    line = " ".join((text or "").split())
    line = line.partition(". ")[0].rstrip(".")
    return line[:1].lower() + line[1:] if line[1:2].islower() else line
