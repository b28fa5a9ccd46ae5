"""What happens when a text grows past the context that a model was made for: a value says it.

`Slide` drops the oldest part and reads the rest again from position 0. `Stop` ends the text.
`Continue` goes on: rotary, ALiBi and Transformer-XL's positions have no end, nor have sines; a
table of learned positions has one, so for it the rule is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clearformer.config import Grid, Learned, ModelConfig
from clearformer.generate.detokenize import Token
from clearformer.generate.sequence import Row


@dataclass(frozen=True)
class Slide:
    """Keep the last `share` of the context and read it again."""

    share: float = 0.75

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share is {self.share}, but it must be above 0 and below 1")

    def kept(self, length: int) -> int:
        """How many tokens of a full context stay."""
        return max(1, int(self.share * length))


@dataclass(frozen=True)
class Stop:
    """End the text where the context is full."""


@dataclass(frozen=True)
class Continue:
    """Go on past the length that the model was trained with."""


PastContext = Slide | Stop | Continue
NAMES: dict[str, PastContext] = {"slide": Slide(), "stop": Stop(), "continue": Continue()}


def usual(config: ModelConfig) -> PastContext:
    """A memory slides by itself; anything else must be told to."""
    return Continue() if config.memory is not None else Slide()


def limit(rule: PastContext, config: ModelConfig) -> int | None:
    """How many tokens of a text the model may see at a time; none: any number."""
    if not isinstance(rule, Continue):
        return config.length
    if isinstance(config.position, Learned | Grid):
        raise ValueError(
            f"{config.name} has learned positions, which end at {config.length}: a text cannot "
            f"continue past them, so slide or stop"
        )
    return None


def require_room(length: int, config: ModelConfig, full: int | None) -> None:
    """A prompt that does not fit is not cut in silence."""
    if full is not None and length > full:
        raise ValueError(
            f"the prompt has {length:,} tokens, but the context of {config.name} is {full:,}: "
            f"give its last part alone"
        )


def room(rows: Sequence[Row], full: int | None) -> int:
    """How many tokens may come after the longest of these rows before something must give."""
    needed = max(row.task.most - len(row.text) for row in rows)
    return needed if full is None else min(needed, full - max(map(len, rows)))


def slide(row: Row, rule: PastContext, full: int) -> list[Token]:
    """Make room in a row that has grown past the context, or end it."""
    if isinstance(rule, Slide):
        row.start += len(row) - rule.kept(full)
        return []
    return row.finish("context")
