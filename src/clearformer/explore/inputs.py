"""Token ids for a request: encoded or given, within the limits, masked or permuted."""

from __future__ import annotations

from collections.abc import Sequence

from clearformer.explore.library import LoadedModel
from clearformer.explore.limits import MAX_TOKENS, Limits
from clearformer.explore.traced_model import TracedModel, encode, encode_source, encode_target
from clearformer.generate.beam import Beam
from clearformer.http_server.errors import bad_field, too_long, wrong_kind
from clearformer.tasks.translation import TranslationTask
from clearformer.text import Tokenizer


def input_ids(
    loaded: LoadedModel, text: str | None, tokens: Sequence[int] | None, limits: Limits
) -> list[int]:
    """The ids of a text as this model reads it, or the given ids, checked."""
    model = loaded.model
    if tokens is not None and text is None:
        ids = require_token_ids(loaded, tokens, "tokens")
    elif text is not None and tokens is None:
        require_text_length(text, limits)
        if model.tokenizer is None:
            raise wrong_kind("this model has no tokenizer: give tokens instead of text")
        pairs = "translate" in loaded.config.verbs
        ids = encode_source(model, text) if pairs else encode(model, text)
    else:
        raise bad_field("text", "give either text or tokens, and not both")
    require_length(loaded, len(ids), limits)
    return ids


def decoder_input_ids(
    loaded: LoadedModel, source: Sequence[int], target: str | None, limits: Limits
) -> list[int]:
    """The input of the decoder: the given text, or the model's own translation."""
    model, config = loaded.model, loaded.config
    target_ids = model.generation.target_ids
    if target_ids is None or model.tokenizer is None:
        raise wrong_kind("the start token of this model is unknown: give target_tokens")
    if target is None:
        translator = TranslationTask(config).translator(
            model.module, model.generation, model.tokenizer
        )
        max_tokens = min(limits.max_tokens, config.length) - 1
        ((best, *_), *_) = translator.decode([list(source)], Beam(width=1), max_tokens)
        return [target_ids[0], *best.tokens]
    require_text_length(target, limits)
    ids = encode_target(model, target)
    require_length(loaded, len(ids), limits)
    return ids


def mask_token(loaded: LoadedModel) -> tuple[Tokenizer, int]:
    """The tokenizer of a masked model, and its mask token."""
    tokenizer = loaded.model.tokenizer
    if tokenizer is None or tokenizer.mask is None:
        raise wrong_kind(f"{loaded.entry.name} has no mask token: choose a masked model")
    return tokenizer, tokenizer.mask


def masked(loaded: LoadedModel, ids: Sequence[int], positions: Sequence[int]) -> list[int]:
    """The ids with the mask token at some positions."""
    _, mask = mask_token(loaded)
    changed = list(ids)
    for position in positions:
        if not 0 <= position < len(ids):
            raise bad_field("mask_at", f"there is no token {position}: there are {len(ids)}")
        changed[position] = mask
    return changed


def permuted(ids: Sequence[int], order: Sequence[int]) -> list[int]:
    """The ids in another order."""
    if sorted(order) != list(range(len(ids))):
        raise bad_field("permutation", f"it must hold each number from 0 to {len(ids) - 1} once")
    return [ids[position] for position in order]


def replacement_token(model: TracedModel, text: str, old: int) -> int:
    """The single token of a text; it begins with a space if the old token did."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise wrong_kind("this model has no tokenizer, so text cannot be encoded")
    spellings = [text, f" {text}"] if model.pieces([old])[0].startswith(" ") else [text]
    encoded = [tokenizer.encode_with_specials(each).tolist() for each in spellings]
    for ids in encoded:
        if len(ids) == 1:
            return int(ids[0])
    raise bad_field(
        "edit",
        f"{text!r} is {len(encoded[0])} tokens, but it replaces one: try a shorter word",
        code="one_token",
    )


def require_text_length(text: str, limits: Limits) -> None:
    if len(text) > limits.max_text:
        raise too_long(len(text), limits.max_text, "characters")


def require_token_ids(loaded: LoadedModel, tokens: Sequence[int], field: str) -> list[int]:
    size = loaded.config.vocabulary
    wrong = next((each for each in tokens if not 0 <= each < size), None)
    if wrong is not None or not tokens:
        problem = "the list is empty" if wrong is None else f"there is no token {wrong}"
        raise bad_field(field, f"{problem}: ids go from 0 to {size - 1}")
    return list(tokens)


def require_length(loaded: LoadedModel, count: int, limits: Limits) -> None:
    """Refuse a text that is too long instead of cutting it."""
    if count > limits.max_tokens:
        raise_to = next((n for n in (512, 768, MAX_TOKENS) if n >= count), None)
        raise too_long(count, limits.max_tokens, raise_to=raise_to)
    config = loaded.config
    longest = config.position.max_length(config.length)
    if longest is not None and count > longest:
        raise too_long(count, longest)
