"""MaskingPolicy tokens, for a model to find them again (Devlin et al. 2018, section 3.1).

Of the tokens of a row, without special ones, `share` are chosen. Of these, `mask` are shown as
[MASK], `random` as some other ordinary token, and the rest as they are, so that a model can
never rely on what it sees. What is chosen depends on (seed, step) alone: another step hides
other tokens of the same text.

Axes: B batch, T tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearformer.data.rows import IGNORE
from clearformer.data.shuffle import draws
from clearformer.text.tokenizer import Tokenizer

CHOICE, SHOWN, OTHER = 2, 3, 4  # purposes of chance, beside those of rows.py

# From the places of a row's tokens, and whether each goes on with a word, to where units begin.
Unit = Callable[[NDArray[np.int64], NDArray[np.bool_]], NDArray[np.int64]]


def single_tokens(places: NDArray[np.int64], continues: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Every token is hidden on its own, as first published."""
    return np.arange(len(places))


def whole_words(places: NDArray[np.int64], continues: NDArray[np.bool_]) -> NDArray[np.int64]:
    """All pieces of a word are hidden together: `walk ##ing` leaves no half to guess from."""
    neighbours = np.diff(places, prepend=-2) == 1
    return np.flatnonzero(~(continues & neighbours))


UNITS: Mapping[str, Unit] = {"tokens": single_tokens, "words": whole_words}


@dataclass(frozen=True)
class MaskingPolicy:
    """How much is hidden, how, and in which units."""

    share: float = 0.15
    mask: float = 0.8
    random: float = 0.1
    unit: Unit = single_tokens


class TokenMasker:
    """Hides tokens of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, how: MaskingPolicy) -> None:
        if tokenizer.mask is None:
            raise ValueError(
                f"the {tokenizer.kind} tokenizer has no [MASK] to hide words behind: use wordpiece"
            )
        self.mask = tokenizer.mask
        self.how = how
        self.special = np.zeros(tokenizer.size, dtype=np.bool_)
        self.special[list(tokenizer.specials.values())] = True
        self.ordinary = np.flatnonzero(~self.special)
        self.continues = tokenizer.is_continuation()

    def corrupt(
        self, tokens: NDArray[np.int64], keep: NDArray[np.bool_], seed: int, step: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What a model is shown, and what it has to find: IGNORE where nothing is hidden."""
        size = tokens.size
        order = draws(size, seed, step, CHOICE).reshape(tokens.shape)  # (B, T)
        hidden = np.zeros(tokens.shape, dtype=np.bool_)  # (B, T)
        candidates = keep & ~self.special[tokens]
        for row, allowed in enumerate(candidates):
            places = np.flatnonzero(allowed)
            hidden[row, self._choose(places, tokens[row, places], order[row])] = True
        chance = (draws(size, seed, step, SHOWN) / 2.0**64).reshape(tokens.shape)
        picks = draws(size, seed, step, OTHER) % np.uint64(len(self.ordinary))
        other = self.ordinary[picks.astype(np.int64)].reshape(tokens.shape)
        how = self.how
        shown = np.where(hidden & (chance < how.mask), self.mask, tokens)
        swapped = hidden & (chance >= how.mask) & (chance < how.mask + how.random)
        return np.where(swapped, other, shown), np.where(hidden, tokens, IGNORE)

    def _choose(
        self, places: NDArray[np.int64], ids: NDArray[np.int64], order: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """Some of the places: whole units, up to the share, at least one if there is any."""
        if not len(places):
            return places
        wanted = max(1, round(self.how.share * len(places)))
        starts = self.how.unit(places, self.continues[ids])
        stops = np.append(starts[1:], len(places))
        chosen: list[int] = []
        for unit in np.argsort(order[: len(starts)], kind="stable").tolist():
            own = range(starts[unit], stops[unit])
            # A word that is too long for what is left is passed over, unless it is the first.
            if not chosen or len(chosen) + len(own) <= wanted:
                chosen += own
            if len(chosen) >= wanted:
                break
        return places[chosen]
