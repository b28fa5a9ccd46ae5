"""GenerationDefaults: the start and end tokens of a model, and the decoding defaults of its maker.

They are not part of a model's config: the same model can be used with others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clearformer.config.codec import from_json
from clearformer.core.patterns import require
from clearformer.text.chat_template import ChatTemplate


@dataclass(frozen=True, kw_only=True)
class GenerationDefaults:
    """Start and end tokens of a model, and how to decode with it unless a user says otherwise."""

    end_ids: tuple[int, ...] | None = None
    """Tokens that end a text; none: those of the tokenizer. A translator has one."""
    chat_template: ChatTemplate | None = None
    """Generators: how a conversation is written as text; none: it was not trained on any."""
    start_id: int | None = None
    """Translators: the token that begins a target; none: not known before training."""
    banned_ids: tuple[int, ...] | None = None
    """Translators: tokens that are never generated; none: the start token."""
    renormalize: bool = False
    """Translators: probabilities sum to 1 without the banned tokens."""
    force_end: bool = False
    """Translators: the last of max_tokens tokens is the end token."""
    max_tokens: int | None = None
    """Translators: maximum length of a target with its end token; none: the model's length."""
    typical_source_ids: tuple[int, ...] = ()
    """Translators: tokens that are common in sources and rare in targets."""
    typical_target_ids: tuple[int, ...] = ()
    """Translators: tokens that are common in targets and rare in sources."""

    def __post_init__(self) -> None:
        require(
            self, "start_id", self.start_id is None or self.start_id >= 0, "at least 0, or absent"
        )
        for name in ("end_ids", "banned_ids", "typical_source_ids", "typical_target_ids"):
            require(self, name, all(each >= 0 for each in getattr(self, name) or ()), "ids from 0")
        require(
            self,
            "max_tokens",
            self.max_tokens is None or self.max_tokens >= 1,
            "at least 1, or absent",
        )
        if self.start_id is not None:
            ends = () if self.end_ids is None else self.end_ids
            require(self, "end_ids", len(ends) == 1, "one id for a translator, as start_id is set")

    @property
    def target_ids(self) -> tuple[int, int] | None:
        """The start and the end token of a translator's targets; None if they are not known."""
        if self.start_id is None or self.end_ids is None:
            return None
        return self.start_id, self.end_ids[0]

    def require_target_ids(self, name: object) -> tuple[int, int]:
        """As `target_ids`; ValueError if they are not known. `name` is that of the model."""
        if self.target_ids is None:
            raise ValueError(
                f"{name}: its start and end tokens are unknown, so it cannot be decoded: train it "
                f"first"
            )
        return self.target_ids

    @property
    def resolved_banned_ids(self) -> tuple[int, ...]:
        """Tokens that are never generated: `banned_ids`, or else the start token."""
        if self.banned_ids is not None:
            return self.banned_ids
        if self.start_id is None or self.start_id in (self.end_ids or ()):
            return ()
        return (self.start_id,)

    def require_fits(self, translates: bool, noun: str) -> None:
        """Raise ValueError for settings that such a model does not use."""
        used = GenerationDefaults(end_ids=self.end_ids, chat_template=self.chat_template)
        if not translates and self != used:
            names = [name for name, value in vars(self).items() if value != vars(used)[name]]
            raise ValueError(
                f"generation.{names[0]} is for translators, but the model is {noun}: leave it out"
            )


# Where earlier versions kept these settings, in the JSON of a model: field, inner field, and the
# current name.
FORMER_PLACES = (
    ("marks", "start", "start_id"),
    ("marks", "end", "end_ids"),
    ("sides", "source", "typical_source_ids"),
    ("sides", "target", "typical_target_ids"),
    ("rules", "never", "banned_ids"),
    ("rules", "share", "renormalize"),
    ("rules", "limit", "force_end"),
    ("rules", "most", "max_tokens"),
    ("head", "ends", "end_ids"),
)
FORMER_VALUES = {"kept": False, "given": True, "cut": False, "closed": True}


def without_generation(model: Any) -> tuple[Any, dict[str, Any]]:
    """The JSON of a model, without the generation settings of earlier versions, and these."""
    if not isinstance(model, dict):
        return model, {}
    model, found = dict(model), dict[str, Any]()
    for place, field, name in FORMER_PLACES:
        inner = model.get(place)
        if not isinstance(inner, dict) or field not in inner:
            continue
        inner = dict(inner)
        value = inner.pop(field)
        if name in ("renormalize", "force_end") and isinstance(value, str):
            value = FORMER_VALUES.get(value, value)
        if place == "marks" and name == "end_ids":
            value = [value]
        if value is not None:
            found.setdefault(name, value)
        model[place] = inner
    if isinstance(model.get("rules"), dict):
        found.setdefault("banned_ids", [])  # no longer those by default
    for place in ("marks", "sides", "rules"):
        inner = model.get(place)
        if inner is None or (isinstance(inner, dict) and not inner.keys() - {"kind"}):
            model.pop(place, None)
    return model, found


def generation_from_json(data: Any) -> GenerationDefaults:
    """Read what `to_json` wrote; anything unknown or of the wrong type is refused."""
    found: GenerationDefaults = from_json(GenerationDefaults, data, "generation")
    return found
