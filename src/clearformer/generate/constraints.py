"""Constraints on generated text: choices, or a regular expression.

A constraint is an automaton over tokens. It tells which tokens may come next and whether the text
may end. Where both are possible the model decides: it samples without the constraint, and a token
that the constraint does not allow ends the text (`sequence.py`).

Constraints are immutable: `after(state, token)` returns the next state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from clearformer.generate.detokenize import byte_level, detokenizer, one_byte
from clearformer.generate.regex_automaton import States, automaton, refused
from clearformer.text import ByteFallbackPairs, BytePairs, Bytes, Characters, Tokenizer

Tree = dict[int, Any]  # a trie by bytes; under TOKENS the tokens that end there
TOKENS = -1


class Constraint(Protocol):
    """An automaton over tokens."""

    start: Hashable

    def allowed(self, state: Hashable) -> Tensor:
        """The ids that may come next, ascending: (ids,)."""

    def may_end(self, state: Hashable) -> bool: ...

    def after(self, state: Hashable, token: int) -> Hashable: ...


class ChoiceConstraint:
    """One of several texts, each as the tokenizer encodes it.

    Choices that need a banned token are left out.
    """

    start: Hashable = ()

    def __init__(
        self, texts: Sequence[str], tokenizer: Tokenizer, banned: Collection[int] = ()
    ) -> None:
        if not texts:
            raise ValueError("there are no choices: give at least one")
        spelled = {encode_continuation(text, tokenizer, "the choice") for text in texts}
        self.texts = {ids for ids in spelled if not set(ids) & set(banned)}
        if not self.texts:
            raise ValueError(
                f"no choice is left: a banned token is needed for "
                f"{' and for '.join(map(repr, texts))}"
            )
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


class RegexConstraint:
    """A regular expression that the whole text must match, in any tokenization.

    A state is a set of states of an automaton over bytes. The tokens that may follow are found by
    walking a trie of all tokens' bytes, leaving each branch where the automaton has no transition.
    Tokens after which no match can be completed are excluded, so a text never gets stuck.
    """

    def __init__(self, pattern: str, tokenizer: Tokenizer, banned: Collection[int] = ()) -> None:
        self.machine, start = automaton(pattern)
        self.tree: Tree = {}
        for token, spelled in enumerate(spellings(tokenizer)):
            if not spelled or token in banned:  # special tokens have no bytes
                continue
            node = self.tree
            for byte in spelled:
                node = node.setdefault(byte, {})
            node.setdefault(TOKENS, []).append(token)
        self.alive = self._alive()
        if not start & self.alive:
            but = ", without the banned ones" if banned else ""
            raise refused(
                pattern,
                f"no text that matches it can be made of the tokens of this tokenizer "
                f"({tokenizer.kind}){but}",
            )
        self.start: Hashable = start & self.alive
        self.following: dict[Hashable, dict[int, States]] = {}

    def allowed(self, state: Hashable) -> Tensor:
        return torch.tensor(sorted(self._tokens(state)), dtype=torch.long)

    def may_end(self, state: Hashable) -> bool:
        assert isinstance(state, frozenset)
        return self.machine.end in state

    def after(self, state: Hashable, token: int) -> Hashable:
        return self._tokens(state)[token]

    def _tokens(self, state: Hashable) -> dict[int, States]:
        """The tokens that may follow, and the state after each."""
        if state not in self.following:
            assert isinstance(state, frozenset)
            self.following[state] = {
                token: living
                for token, after in self._walk(self.tree, state)
                if (living := after & self.alive)
            }
        return self.following[state]

    def _walk(self, node: Tree, states: States) -> Iterator[tuple[int, States]]:
        for byte, below in node.items():
            if byte == TOKENS:
                yield from ((token, states) for token in below)
            elif after := self.machine.step(states, byte):
                yield from self._walk(below, after)

    def _alive(self) -> States:
        """The states of the automaton from which tokens lead to its end.

        A set of states is alive if one of them is, so single states are examined, not their sets.
        """
        alive = {self.machine.end}
        self._spread(alive, self._leads_by_byte)
        if not all(TOKENS in self.tree.get(byte, ()) for byte in range(256)):
            self._spread(
                alive, self._leads_by_token
            )  # slower, and needed only if some bytes are no tokens
        return frozenset(alive)

    def _spread(self, alive: set[int], leads: Callable[[int, set[int]], bool]) -> None:
        """Add the states that lead to a state of `alive`, until there are no more."""
        before = 0
        while len(alive) > before:
            before = len(alive)
            # States built last are mostly closest to the end, so one round finds almost all.
            for state in reversed(range(len(self.machine.epsilon_to))):
                free = self.machine.epsilon_to[state]
                if state not in alive and (not alive.isdisjoint(free) or leads(state, alive)):
                    alive.add(state)

    def _leads_by_byte(self, state: int, alive: set[int]) -> bool:
        return any(
            target in alive and TOKENS in self.tree.get(byte, ())
            for first, last, target in self.machine.bytes_to[state]
            for byte in range(first, last + 1)
        )

    def _leads_by_token(self, state: int, alive: set[int]) -> bool:
        return any(after & alive for _, after in self._walk(self.tree, frozenset([state])))


def spellings(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of each token, for tokenizers that decode by concatenation."""
    match tokenizer:
        case Bytes():
            return [bytes([i]) for i in range(256)]
        case Characters():
            return [b"", *(character.encode() for character in tokenizer.characters)]
        case BytePairs():
            special = set(tokenizer.specials.values())
            return [
                b"" if token in special else byte_level(tokenizer.spec, token)
                for token in range(tokenizer.size)
            ]
        case ByteFallbackPairs():
            # A run of byte tokens decodes only as a whole; a match consists of whole characters.
            special = set(tokenizer.specials.values())
            pieces = tokenizer.pieces(range(tokenizer.size))
            return [
                b"" if token in special else one_byte(piece) or piece.encode()
                for token, piece in enumerate(pieces)
            ]
        case _:
            raise ValueError(
                f"a pattern needs a tokenizer that decodes by concatenation, which a "
                f"{tokenizer.kind} tokenizer does not: use --choices, or a model of bytes, "
                f"characters or byte pairs"
            )


def encode_continuation(text: str, tokenizer: Tokenizer, what: str) -> tuple[int, ...]:
    """The ids that add exactly this text to a prompt."""
    ids: list[int] = tokenizer.encode_continuation(text).tolist()
    # Its own last token stands for any prompt.
    detok = detokenizer(tokenizer, ids[-1:])
    decoded = "".join(map(detok.add, ids)) + detok.flush()
    if not ids or decoded != text:
        near = ids and decoded.casefold().split() == text.casefold().split()
        advice = f"give {decoded!r}" if near else "no text could ever be it"
        raise ValueError(
            f"{what} {text!r} cannot be encoded: this tokenizer ({tokenizer.kind}) makes "
            f"{decoded!r} of it after a prompt, so {advice}"
        )
    return tuple(ids)
