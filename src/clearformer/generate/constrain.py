"""Text that must have a form: one of some choices, or a regular expression.

A constraint is an automaton over tokens. It says which tokens may come next and whether the
text may end here. Where both are possible the model decides: it draws as if it were free, and
a token that the form does not allow is its end (`row.py`).

Constraints are values and never change: `after(state, token)` gives the next state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from clearformer.generate.expression import States, automaton
from clearformer.text import BytePairs, Bytes, Characters, Tokenizer

Tree = dict[int, Any]  # by bytes; under TOKENS the tokens that end there
TOKENS = -1


class Constraint(Protocol):
    """An automaton over tokens."""

    start: Hashable

    def allowed(self, state: Hashable) -> Tensor:
        """Ids that may come next, in rising order: (ids,)."""

    def may_end(self, state: Hashable) -> bool: ...

    def after(self, state: Hashable, token: int) -> Hashable: ...


class Choices:
    """One of some texts, each spelled as the tokenizer spells it: a tree of tokens."""

    start: Hashable = ()

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer) -> None:
        if not texts:
            raise ValueError("there are no choices: give at least one")
        self.texts = {tuple(_encoded(text, tokenizer)) for text in texts}
        self.children: dict[Hashable, set[int]] = {}
        for ids in self.texts:
            for length in range(len(ids)):
                self.children.setdefault(ids[:length], set()).add(ids[length])

    def allowed(self, state: Hashable) -> Tensor:
        return torch.tensor(sorted(self.children.get(state, ())), dtype=torch.long)

    def may_end(self, state: Hashable) -> bool:
        return state in self.texts

    def after(self, state: Hashable, token: int) -> Hashable:
        assert isinstance(state, tuple)
        return (*state, token)


class Expression:
    """A regular expression that the whole text must match, over every spelling by tokens.

    A state is a set of states of the automaton over bytes. Which tokens may follow it is found
    by walking a tree of all tokens' bytes, leaving each branch where the automaton dies.
    """

    def __init__(self, pattern: str, tokenizer: Tokenizer) -> None:
        self.machine, start = automaton(pattern)
        self.start: Hashable = start
        self.tree: Tree = {}
        for token, spelled in enumerate(spellings(tokenizer)):
            node = self.tree
            for byte in spelled:
                node = node.setdefault(byte, {})
            if spelled:  # special tokens spell nothing
                node.setdefault(TOKENS, []).append(token)
        self.following: dict[Hashable, dict[int, States]] = {}

    def allowed(self, state: Hashable) -> Tensor:
        return torch.tensor(sorted(self._tokens(state)), dtype=torch.long)

    def may_end(self, state: Hashable) -> bool:
        assert isinstance(state, frozenset)
        return self.machine.end in state

    def after(self, state: Hashable, token: int) -> Hashable:
        return self._tokens(state)[token]

    def _tokens(self, state: Hashable) -> dict[int, States]:
        """Each token that may follow, and the state behind it."""
        if state not in self.following:
            assert isinstance(state, frozenset)
            self.following[state] = dict(self._walk(self.tree, state))
        return self.following[state]

    def _walk(self, node: Tree, states: States) -> Iterator[tuple[int, States]]:
        for byte, below in node.items():
            if byte == TOKENS:
                yield from ((token, states) for token in below)
            elif after := self.machine.step(states, byte):
                yield from self._walk(below, after)


def spellings(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of each token, for tokenizers whose text is their tokens end to end."""
    match tokenizer:
        case Bytes():
            return [bytes([i]) for i in range(256)]
        case Characters():
            return [b"", *(character.encode() for character in tokenizer.characters)]
        case BytePairs():
            letters = byte_letters()
            special = set(tokenizer.parts.specials)
            return [
                b"" if token in special else bytes(letters[letter] for letter in token)
                for token in tokenizer.parts.vocabulary
            ]
        case _:
            raise ValueError(
                f"a pattern needs tokens that spell the text one after the other, which those of "
                f"a {tokenizer.kind} tokenizer do not: use --choices, or a model of bytes, "
                f"characters or byte pairs"
            )


def byte_letters() -> dict[str, int]:
    """The byte behind each printable letter of a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + i): byte for i, byte in enumerate(others)}


def _encoded(text: str, tokenizer: Tokenizer) -> list[int]:
    ids: list[int] = tokenizer.encode(text).tolist()
    if not ids or tokenizer.decode(ids) != text:
        raise ValueError(
            f"the choice {text!r} cannot be encoded: this tokenizer ({tokenizer.kind}) makes "
            f"{tokenizer.decode(ids)!r} of it, so no text could ever be it"
        )
    return ids
