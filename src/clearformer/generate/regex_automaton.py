"""Regular expressions as nondeterministic automata over bytes.

Supported: characters, `.`, classes `[a-z]` and `[^"]`, `\\d \\w \\s` (of ASCII) and their
opposites, groups, `|`, and the repetitions `* + ? {m} {m,} {m,n}`. The whole text must match, so
`^` and `$` at the ends have no effect. Lookarounds and backreferences are not regular, and raise.

The automaton reads bytes, not characters, because a token may end inside a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

Ranges = tuple[tuple[int, int], ...]  # first and last character of each range
States = frozenset[int]

MAX_STATES = 20_000  # more come of nested repetitions, which are mistakes
MAX_DEPTH = 100  # of nested groups and repetitions: parsing recurses
LAST = 0x10FFFF
DIGITS: Ranges = ((48, 57),)
WORDS: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACES: Ranges = ((9, 13), (32, 32))
NAMED: dict[str, Ranges] = {"d": DIGITS, "w": WORDS, "s": SPACES}
SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
HEXADECIMAL = {"x": 2, "u": 4}
CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}


@dataclass
class Automaton:
    """States, and transitions by bytes; a text leads to a set of states."""

    bytes_to: list[list[tuple[int, int, int]]] = field(default_factory=list)  # first, last, state
    epsilon_to: list[list[int]] = field(default_factory=list)  # epsilon transitions
    end: int = 0

    def state(self) -> int:
        if len(self.bytes_to) >= MAX_STATES:
            raise ValueError(f"it needs more than {MAX_STATES:,} states")
        self.bytes_to.append([])
        self.epsilon_to.append([])
        return len(self.bytes_to) - 1

    def closure(self, states: Iterable[int]) -> States:
        """The epsilon closure of these states."""
        found, left = set(states), list(states)
        while left:
            for each in self.epsilon_to[left.pop()]:
                if each not in found:
                    found.add(each)
                    left.append(each)
        return frozenset(found)

    def step(self, states: States, byte: int) -> States:
        return self.closure(
            {
                target
                for state in states
                for first, last, target in self.bytes_to[state]
                if first <= byte <= last
            }
        )


def automaton(pattern: str) -> tuple[Automaton, States]:
    """The automaton of a pattern and its start states; it accepts wherever it reaches `end`."""
    machine = Automaton()
    try:
        start, machine.end = build(_Parser(pattern).whole(), machine)
    except ValueError as problem:
        raise refused(pattern, str(problem)) from None
    return machine, machine.closure([start])


def refused(pattern: str, problem: str) -> ValueError:
    return ValueError(f"the pattern {pattern!r:.200} cannot be used: {problem}")


# --- syntax tree ---------------------------------------------------------------------------


@dataclass(frozen=True)
class CharacterClass:
    """One of several characters."""

    ranges: Ranges


@dataclass(frozen=True)
class Concatenation:
    """Parts in sequence."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alternation:
    """One of several parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """A repeated part; without a maximum, any number of times."""

    part: Node
    minimum: int
    maximum: int | None


Node = CharacterClass | Concatenation | Alternation | Repeat


def build(node: Node, machine: Automaton) -> tuple[int, int]:
    """Add the states of a node to the automaton; return its first and its last."""
    start, end = machine.state(), machine.state()
    free = machine.epsilon_to
    match node:
        case CharacterClass(ranges=ranges):
            for low, high in ranges:
                for row in utf8(low, high):
                    place = start
                    for number, (first, last) in enumerate(row, 1):
                        target = end if number == len(row) else machine.state()
                        machine.bytes_to[place].append((first, last, target))
                        place = target
        case Alternation(parts=parts):
            for part in parts:
                first, last = build(part, machine)
                free[start].append(first)
                free[last].append(end)
        case Concatenation(parts=parts):
            place = start
            for part in parts:
                first, last = build(part, machine)
                free[place].append(first)
                place = last
            free[place].append(end)
        case Repeat(part=part, minimum=least, maximum=most):
            place = start
            for number in range(least + 1 if most is None else most):
                first, last = build(part, machine)
                if number >= least:
                    free[place].append(end)
                free[place].append(first)
                place = last
            free[place].append(end)
            if most is None:
                free[place].append(first)  # and again
    return start, end


class _Parser:
    """A recursive descent parser of patterns."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern.removeprefix("^")
        if self.text.endswith("$") and not self.text.endswith("\\$"):
            self.text = self.text[:-1]
        self.place = 0
        self.depth = 0  # of groups and repetitions around this place

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply: remove some groups")

    def whole(self) -> Node:
        node = self.alternation()
        if self.place < len(self.text):
            raise ValueError("a ) has no matching (")
        return node

    def alternation(self) -> Node:
        parts = [self.concatenation()]
        while self.next("|"):
            parts.append(self.concatenation())
        return Alternation(tuple(parts))

    def concatenation(self) -> Node:
        parts: list[Node] = []
        while self.place < len(self.text) and self.text[self.place] not in "|)":
            outside = self.depth
            part = self.atom()
            while (counts := self.counts()) is not None:
                part = Repeat(part, *counts)
                self.next("?")  # lazy: the same texts
                self.deeper()
            self.depth = outside
            parts.append(part)
        return Concatenation(tuple(parts))

    def atom(self) -> Node:
        sign = self.take()
        if sign == "(":
            if self.next("?") and not self.next(":"):
                raise ValueError("(? is supported only as (?:")
            self.deeper()
            node = self.alternation()
            if not self.next(")"):
                raise ValueError("a ( is not closed")
            return node
        if sign == "[":
            return CharacterClass(self.character_class())
        if sign == ".":
            return CharacterClass(opposite(((10, 10),)))
        if sign in "*+?{":
            raise ValueError(f"{sign} repeats nothing")
        if sign in "^$":
            raise ValueError(f"{sign} in the middle of a pattern matches nothing")
        return CharacterClass(self.escaped() if sign == "\\" else _only(sign))

    def counts(self) -> tuple[int, int | None] | None:
        """The minimum and maximum of a repetition, if one follows."""
        for sign, counts in SIGNS.items():
            if self.next(sign):
                return counts
        if not self.next("{"):
            return None
        inside, _, _ = self.text[self.place :].partition("}")
        self.place += len(inside) + 1
        found = re.fullmatch(r"(\d+)|(\d*),(\d*)", inside, re.ASCII)
        if not found or inside == "," or self.place > len(self.text):
            raise ValueError(f"{{{inside}}} is not a repetition count")
        exactly, least, most = found.groups()
        if exactly:
            return int(exactly), int(exactly)
        if most and int(most) < int(least or 0):
            raise ValueError(f"{{{inside}}} has a minimum above its maximum")
        return int(least or 0), int(most) if most else None

    def character_class(self) -> Ranges:
        """The characters of a class, after its [ and including its ]."""
        negated = self.next("^")
        found: list[tuple[int, int]] = []
        while not found or not self.next("]"):  # a leading ] belongs to the class
            first = self.member()
            if self.text.startswith("-", self.place) and not self.text.startswith("-]", self.place):
                self.place += 1
                last = self.member()
                (low, _), (_, high) = first[0], last[-1]
                if len(first) > 1 or len(last) > 1 or low > high:
                    raise ValueError(
                        "a class has a range whose end is before its start or is not a character"
                    )
                found.append((low, high))
            else:
                found.extend(first)
        return opposite(tuple(found)) if negated else tuple(found)

    def member(self) -> Ranges:
        sign = self.take()
        return self.escaped() if sign == "\\" else _only(sign)

    def escaped(self) -> Ranges:
        sign = self.take()
        if sign in NAMED:
            return NAMED[sign]
        if sign.lower() in NAMED:
            return opposite(NAMED[sign.lower()])
        if sign in CONTROLS:
            return _only(CONTROLS[sign])
        if sign in HEXADECIMAL:
            digits = self.text[self.place : self.place + HEXADECIMAL[sign]]
            self.place += len(digits)
            if not re.fullmatch(f"[0-9a-fA-F]{{{HEXADECIMAL[sign]}}}", digits):
                raise ValueError(f"\\{sign}{digits} is not a character")
            return _only(chr(int(digits, 16)))
        if sign.isalnum():
            raise ValueError(f"\\{sign} is not supported")
        return _only(sign)

    def next(self, sign: str) -> bool:
        """Whether this sign follows; if so, it is consumed."""
        if not self.text.startswith(sign, self.place):
            return False
        self.place += 1
        return True

    def take(self) -> str:
        if self.place >= len(self.text):
            raise ValueError("it ends too early")
        self.place += 1
        return self.text[self.place - 1]


# --- characters ----------------------------------------------------------------------------


def _only(character: str) -> Ranges:
    return ((ord(character), ord(character)),)


def opposite(ranges: Ranges) -> Ranges:
    """All other characters."""
    found, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return (*found, (start, LAST)) if start <= LAST else tuple(found)


def utf8(low: int, high: int) -> list[list[tuple[int, int]]]:
    """The characters `low` to `high` as lists of byte ranges, each a Cartesian product."""
    # Parts with the same number of bytes, without surrogates.
    edges = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, LAST))
    found = []
    for first, last in edges:
        if max(first, low) <= min(last, high):
            found += _rows(chr(max(first, low)).encode(), chr(min(last, high)).encode())
    return found


def _rows(low: bytes, high: bytes) -> list[list[tuple[int, int]]]:
    first, last = low[0], high[0]
    if len(low) == 1:
        return [[(first, last)]]
    least, most = b"\x80" * (len(low) - 1), b"\xbf" * (len(low) - 1)
    if first == last:
        return [[(first, first), *row] for row in _rows(low[1:], high[1:])]
    found = []
    if low[1:] != least:
        found += [[(first, first), *row] for row in _rows(low[1:], most)]
        first += 1
    if high[1:] != most:
        found += [[(last, last), *row] for row in _rows(least, high[1:])]
        last -= 1
    if first <= last:
        found.append([(first, last), *[(0x80, 0xBF)] * len(least)])
    return found
