"""From what a page asks to what a model is given: ids within the limits, masked or permuted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clearformer.config import Grid, Learned
from clearformer.explore.errors import bad_field, too_long, wrong_kind
from clearformer.explore.library import Opened
from clearformer.explore.limits import MOST_TOKENS, Limits
from clearformer.explore.subject import Subject, ids, source_ids, target_ids
from clearformer.generate.beam import Beam
from clearformer.tasks.translation import TranslationTask


def own_ids(opened: Opened, text: str | None, tokens: Sequence[int] | None, limits: Limits) -> Any:
    """The ids of a text as this model reads it, or the given ids, checked."""
    subject = opened.subject
    if (text is None) == (tokens is None):
        raise bad_field("text", "give either text or tokens, and not both")
    if text is not None:
        require_text(text, limits)
        if subject.tokenizer is None:
            raise wrong_kind("this model has no tokenizer, so give tokens and not text")
        pairs = "translate" in opened.config.verbs
        found = source_ids(subject, text) if pairs else ids(subject, text)
    else:
        assert tokens is not None
        found = require_ids(opened, tokens, "tokens")
    require_room(opened, len(found), limits)
    return found


def own_target(
    opened: Opened, source: Sequence[int], target: str | None, limits: Limits
) -> list[int]:
    """What a decoder is told that it wrote: the given text, or its own translation."""
    subject, config = opened.subject, opened.config
    marks = getattr(config, "marks", None)
    if marks is None or subject.tokenizer is None:
        raise wrong_kind("nobody knows where this model's targets begin, so give tokens")
    if target is None:
        translator = TranslationTask(config).translator(subject.model, subject.tokenizer)
        most = min(limits.max_tokens, config.length) - 1
        ((best, *_), *_) = translator.decode([list(source)], Beam(width=1), most)
        return [marks.start, *best.tokens]
    require_text(target, limits)
    found = target_ids(subject, target)
    require_room(opened, len(found), limits)
    return found


def masked(opened: Opened, found: Sequence[int], places: Sequence[int]) -> list[int]:
    """The ids with [MASK] in some places."""
    tokenizer = opened.subject.tokenizer
    if tokenizer is None or tokenizer.mask is None:
        raise wrong_kind(f"{opened.entry.name} knows no [MASK]: choose a masked model")
    changed = list(found)
    for place in places:
        if not 0 <= place < len(found):
            raise bad_field("mask_at", f"there is no token {place}: there are {len(found)}")
        changed[place] = tokenizer.mask
    return changed


def permuted(found: Sequence[int], order: Sequence[int]) -> list[int]:
    """The ids in another order."""
    if sorted(order) != list(range(len(found))):
        raise bad_field("permutation", f"it must hold each number from 0 to {len(found) - 1} once")
    return [found[place] for place in order]


def one_token(subject: Subject, text: str, old: int) -> int:
    """The one token that a text is, with the space that the old one began with if need be."""
    tokenizer = subject.tokenizer
    if tokenizer is None:
        raise wrong_kind("this model has no tokenizer, so nothing can be typed in")
    tries = [text, f" {text}"] if subject.pieces([old])[0].startswith(" ") else [text]
    counts = []
    for each in tries:
        found = tokenizer.encode_marked(each).tolist()
        counts.append(len(found))
        if len(found) == 1:
            return int(found[0])
    raise bad_field(
        "edit",
        f"{text!r} is {counts[0]} tokens here, but it takes the place of one: try a shorter word",
        code="one_token",
    )


def require_text(text: str, limits: Limits) -> None:
    if len(text) > limits.max_text:
        raise too_long(len(text), limits.max_text, "characters")


def require_ids(opened: Opened, tokens: Sequence[int], field: str) -> list[int]:
    size = opened.config.vocabulary
    wrong = next((each for each in tokens if not 0 <= each < size), None)
    if wrong is not None or not tokens:
        what = "there are none" if wrong is None else f"there is no token {wrong}"
        raise bad_field(field, f"{what}: ids go from 0 to {size - 1}")
    return list(tokens)


def require_room(opened: Opened, count: int, limits: Limits) -> None:
    """A text that does not fit is not cut in silence."""
    if count > limits.max_tokens:
        hard = next((n for n in (512, 768, MOST_TOKENS) if n >= count), None)
        raise too_long(count, limits.max_tokens, hard=hard)
    config = opened.config
    if isinstance(config.position, Learned | Grid) and count > config.length:
        raise too_long(count, config.length)
