"""Masks tokens for masked language modelling (Devlin et al. 2018, section 3.1).

Of the tokens of a row, except special ones, a fraction `rate` is chosen. Of these, `mask_replace`
are replaced by [MASK], `random_replace` by a random ordinary token, and the rest are kept, so that
a model can never rely on its input. The choice depends on (seed, step) alone: every step masks
other tokens of a text.

Axes: B batch, T tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearformer.data.rows import IGNORE
from clearformer.data.shuffle import draws
from clearformer.text.tokenizer import Tokenizer

CHOICE, SHOWN, OTHER = 2, 3, 4  # random streams, besides those of rows.py

# From the positions of a row's tokens, and whether each continues a word, to the starts of units.
Unit = Callable[[NDArray[np.int64], NDArray[np.bool_]], NDArray[np.int64]]


def single_tokens(positions: NDArray[np.int64], continues: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Every token is masked independently, as in the original BERT."""
    return np.arange(len(positions))


def whole_words(positions: NDArray[np.int64], continues: NDArray[np.bool_]) -> NDArray[np.int64]:
    """All pieces of a word are masked together, such as `walk ##ing`."""
    neighbours = np.diff(positions, prepend=-2) == 1
    return np.flatnonzero(~(continues & neighbours))


UNITS: Mapping[str, Unit] = {"tokens": single_tokens, "words": whole_words}


@dataclass(frozen=True)
class MaskingPolicy:
    """How much is masked, how, and in which units."""

    rate: float = 0.15
    mask_replace: float = 0.8
    random_replace: float = 0.1
    unit: Unit = single_tokens


class TokenMasker:
    """Masks tokens of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, policy: MaskingPolicy) -> None:
        if tokenizer.mask is None:
            raise ValueError(f"the {tokenizer.kind} tokenizer has no [MASK] token: use wordpiece")
        self.mask = tokenizer.mask
        self.policy = policy
        self.special = np.zeros(tokenizer.size, dtype=np.bool_)
        self.special[list(tokenizer.specials.values())] = True
        self.ordinary = np.flatnonzero(~self.special)
        self.continues = tokenizer.is_continuation()

    def corrupt(
        self, tokens: NDArray[np.int64], attention_mask: NDArray[np.bool_], seed: int, step: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The input with masked tokens, and the targets: IGNORE where nothing is masked."""
        size = tokens.size
        order = draws(size, seed, step, CHOICE).reshape(tokens.shape)  # (B, T)
        hidden = np.zeros(tokens.shape, dtype=np.bool_)  # (B, T)
        candidates = attention_mask & ~self.special[tokens]
        for row, allowed in enumerate(candidates):
            positions = np.flatnonzero(allowed)
            hidden[row, self._choose(positions, tokens[row, positions], order[row])] = True
        chance = (draws(size, seed, step, SHOWN) / 2.0**64).reshape(tokens.shape)
        picks = draws(size, seed, step, OTHER) % np.uint64(len(self.ordinary))
        other = self.ordinary[picks.astype(np.int64)].reshape(tokens.shape)
        policy = self.policy
        shown = np.where(hidden & (chance < policy.mask_replace), self.mask, tokens)
        swapped = (
            hidden
            & (chance >= policy.mask_replace)
            & (chance < policy.mask_replace + policy.random_replace)
        )
        return np.where(swapped, other, shown), np.where(hidden, tokens, IGNORE)

    def _choose(
        self, positions: NDArray[np.int64], ids: NDArray[np.int64], order: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """Choose positions: whole units, up to the rate, at least one."""
        if not len(positions):
            return positions
        target_count = max(1, round(self.policy.rate * len(positions)))
        starts = self.policy.unit(positions, self.continues[ids])
        stops = np.append(starts[1:], len(positions))
        chosen: list[int] = []
        for unit in np.argsort(order[: len(starts)], kind="stable").tolist():
            unit_tokens = range(starts[unit], stops[unit])
            # A word that would exceed the target is skipped, unless it is the first.
            if not chosen or len(chosen) + len(unit_tokens) <= target_count:
                chosen += unit_tokens
            if len(chosen) >= target_count:
                break
        return positions[chosen]
