"""Context overflow: what happens when a text outgrows the model's context.

`SlidingWindow` drops the oldest tokens and reads the rest again from position 0. `StopAtLimit`
ends the text. `NoLimit` goes on, which rotary, ALiBi, sinusoidal and Transformer-XL positions
allow; a table of learned positions does not, and raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clearformer.config import ModelConfig
from clearformer.generate.detokenize import Token
from clearformer.generate.sequence import GeneratedSequence


@dataclass(frozen=True)
class SlidingWindow:
    """Keep the last `share` of the context, and read it again."""

    share: float = 0.75

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share is {self.share}, but it must be above 0 and below 1")

    def kept(self, length: int) -> int:
        """The number of tokens kept of a context of this length."""
        return max(1, int(self.share * length))


@dataclass(frozen=True)
class StopAtLimit:
    """End the text where the context is full."""


@dataclass(frozen=True)
class NoLimit:
    """Go on past the length that the model was trained with."""


ContextOverflow = SlidingWindow | StopAtLimit | NoLimit
OVERFLOW_BY_NAME: dict[str, ContextOverflow] = {
    "slide": SlidingWindow(),
    "stop": StopAtLimit(),
    "continue": NoLimit(),
}


def default_overflow(config: ModelConfig) -> ContextOverflow:
    """The overflow rule of a model unless one is given: a recurrent memory needs no window."""
    return NoLimit() if config.memory is not None else SlidingWindow()


def context_limit(rule: ContextOverflow, config: ModelConfig) -> int | None:
    """The largest number of tokens that the model may see; None: any number."""
    if not isinstance(rule, NoLimit):
        return config.length
    if config.position.max_length(config.length) is not None:
        raise ValueError(
            f"{config.name} has {config.length} learned positions, so a text cannot continue past "
            f"them: slide or stop"
        )
    return None


def check_prompt_length(length: int, config: ModelConfig, limit: int | None) -> None:
    """Raise ValueError for a prompt that does not fit, instead of truncating it silently."""
    if limit is not None and length > limit:
        raise ValueError(
            f"the prompt has {length:,} tokens, but the context of {config.name} is {limit:,}: "
            f"give its last part alone"
        )


def fit_prompt(
    sequence: GeneratedSequence, rule: ContextOverflow, config: ModelConfig, limit: int | None
) -> None:
    """Let a sliding window drop the beginning of a prompt that does not fit; else ValueError."""
    if limit is not None and len(sequence) > limit and isinstance(rule, SlidingWindow):
        handle_overflow(sequence, rule, limit)
    check_prompt_length(len(sequence), config, limit)


def prompt_note(
    length: int, rule: ContextOverflow, config: ModelConfig, limit: int | None
) -> str | None:
    """What a sliding window does to a prompt of this length; None if it fits."""
    if limit is None or length <= limit or not isinstance(rule, SlidingWindow):
        return None
    return (
        f"the prompt has {length:,} tokens, but the context of {config.name} is {limit:,}: its "
        f"last {rule.kept(limit):,} tokens are continued (`context_overflow` stop refuses it)"
    )


def remaining_tokens(sequences: Sequence[GeneratedSequence], limit: int | None) -> int:
    """How many tokens the longest of these sequences can still generate within the limit."""
    needed = max(sequence.config.max_tokens - len(sequence.generated) for sequence in sequences)
    return needed if limit is None else min(needed, limit - max(map(len, sequences)))


def handle_overflow(sequence: GeneratedSequence, rule: ContextOverflow, limit: int) -> list[Token]:
    """Make room in a sequence that has outgrown its context, or end it."""
    if isinstance(rule, SlidingWindow):
        sequence.start += len(sequence) - rule.kept(limit)
        return []
    return sequence.finish("context")
