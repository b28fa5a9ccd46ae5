"""Regular expressions as automata over bytes, exactly: read, then one byte at a time.

What is understood: characters, `.`, classes `[a-z]` and `[^"]`, `\\d \\w \\s` (of ASCII) and their
opposites, groups, `|`, and the repetitions `* + ? {m} {m,} {m,n}`. The whole text must match, so
`^` and `$` at the ends say nothing new. Looking around and references to groups are no regular
languages, and are refused.

Over bytes and not characters, because a token may end in the middle of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

Ranges = tuple[tuple[int, int], ...]  # characters, as first and last of each stretch
States = frozenset[int]

LARGEST = 20_000  # states: a repetition of a repetition of a repetition is a mistake
DEEPEST = 100  # brackets and repetitions inside each other: read and built by recursion
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
    """States and the bytes that lead from one to the next; a text leads to a set of states."""

    bytes_to: list[list[tuple[int, int, int]]] = field(default_factory=list)  # first, last, state
    free_to: list[list[int]] = field(default_factory=list)  # without reading anything
    end: int = 0

    def state(self) -> int:
        if len(self.bytes_to) >= LARGEST:
            raise ValueError(f"it needs more than {LARGEST:,} states")
        self.bytes_to.append([])
        self.free_to.append([])
        return len(self.bytes_to) - 1

    def reach(self, states: Iterable[int]) -> States:
        """These states and all that can be reached for nothing."""
        found, left = set(states), list(states)
        while left:
            for each in self.free_to[left.pop()]:
                if each not in found:
                    found.add(each)
                    left.append(each)
        return frozenset(found)

    def step(self, states: States, byte: int) -> States:
        return self.reach(
            {
                target
                for state in states
                for first, last, target in self.bytes_to[state]
                if first <= byte <= last
            }
        )


def automaton(pattern: str) -> tuple[Automaton, States]:
    """The automaton of a pattern, and where it starts; it may end wherever it reaches `end`."""
    machine = Automaton()
    try:
        start, machine.end = build(_Reader(pattern).whole(), machine)
    except ValueError as problem:
        raise refused(pattern, str(problem)) from None
    return machine, machine.reach([start])


def refused(pattern: str, problem: str) -> ValueError:
    return ValueError(f"the pattern {pattern!r:.200} cannot be used: {problem}")


# --- what a pattern says -------------------------------------------------------------------


@dataclass(frozen=True)
class One:
    """One character out of some."""

    ranges: Ranges


@dataclass(frozen=True)
class Row:
    """One after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Either:
    """One of several."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """The same several times; without a most, any number."""

    part: Node
    least: int
    most: int | None


Node = One | Row | Either | Repeat


def build(node: Node, machine: Automaton) -> tuple[int, int]:
    """Put a node's states into the automaton: its first and its last."""
    start, end = machine.state(), machine.state()
    free = machine.free_to
    match node:
        case One(ranges=ranges):
            for low, high in ranges:
                for row in utf8(low, high):
                    place = start
                    for number, (first, last) in enumerate(row, 1):
                        target = end if number == len(row) else machine.state()
                        machine.bytes_to[place].append((first, last, target))
                        place = target
        case Either(parts=parts):
            for part in parts:
                first, last = build(part, machine)
                free[start].append(first)
                free[last].append(end)
        case Row(parts=parts):
            place = start
            for part in parts:
                first, last = build(part, machine)
                free[place].append(first)
                place = last
            free[place].append(end)
        case Repeat(part=part, least=least, most=most):
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


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern.removeprefix("^")
        if self.text.endswith("$") and not self.text.endswith("\\$"):
            self.text = self.text[:-1]
        self.place = 0
        self.depth = 0  # brackets and repetitions around this place

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError("it is nested too deeply, so take some brackets away")

    def whole(self) -> Node:
        node = self.either()
        if self.place < len(self.text):
            raise ValueError("a ) closes nothing")
        return node

    def either(self) -> Node:
        parts = [self.row()]
        while self.next("|"):
            parts.append(self.row())
        return Either(tuple(parts))

    def row(self) -> Node:
        parts: list[Node] = []
        while self.place < len(self.text) and self.text[self.place] not in "|)":
            outside = self.depth
            part = self.single()
            while (counts := self.counts()) is not None:
                part = Repeat(part, *counts)
                self.next("?")  # as few as possible: the same texts
                self.deeper()
            self.depth = outside
            parts.append(part)
        return Row(tuple(parts))

    def single(self) -> Node:
        sign = self.take()
        if sign == "(":
            if self.next("?") and not self.next(":"):
                raise ValueError("(? is only understood as (?:")
            self.deeper()
            node = self.either()
            if not self.next(")"):
                raise ValueError("a ( is not closed")
            return node
        if sign == "[":
            return One(self.inside())
        if sign == ".":
            return One(opposite(((10, 10),)))
        if sign in "*+?{":
            raise ValueError(f"{sign} repeats nothing")
        if sign in "^$":
            raise ValueError(f"{sign} in the middle matches no text")
        return One(self.escaped() if sign == "\\" else _only(sign))

    def counts(self) -> tuple[int, int | None] | None:
        """How often what came before may come, if a repetition follows."""
        for sign, counts in SIGNS.items():
            if self.next(sign):
                return counts
        if not self.next("{"):
            return None
        inside, _, _ = self.text[self.place :].partition("}")
        self.place += len(inside) + 1
        found = re.fullmatch(r"(\d+)|(\d*),(\d*)", inside, re.ASCII)
        if not found or inside == "," or self.place > len(self.text):
            raise ValueError(f"{{{inside}}} is no number of times")
        exactly, least, most = found.groups()
        if exactly:
            return int(exactly), int(exactly)
        if most and int(most) < int(least or 0):
            raise ValueError(f"{{{inside}}} has more at the least than at the most")
        return int(least or 0), int(most) if most else None

    def inside(self) -> Ranges:
        """The characters of a class, from behind its [ to its ]."""
        negated = self.next("^")
        found: list[tuple[int, int]] = []
        while not found or not self.next("]"):  # a ] that comes first is one of the class
            first = self.member()
            if self.text.startswith("-", self.place) and not self.text.startswith("-]", self.place):
                self.place += 1
                last = self.member()
                (low, _), (_, high) = first[0], last[-1]
                if len(first) > 1 or len(last) > 1 or low > high:
                    raise ValueError("a class has a stretch that runs backwards or to no character")
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
                raise ValueError(f"\\{sign}{digits} is no character")
            return _only(chr(int(digits, 16)))
        if sign.isalnum():
            raise ValueError(f"\\{sign} is not understood")
        return _only(sign)

    def next(self, sign: str) -> bool:
        """Whether this sign follows; if so, it is read."""
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
    """Every other character."""
    found, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return (*found, (start, LAST)) if start <= LAST else tuple(found)


def utf8(low: int, high: int) -> list[list[tuple[int, int]]]:
    """The characters `low` to `high` as rows of byte ranges, each the product of its ranges."""
    # Pieces with the same number of bytes, without the halves of surrogate pairs.
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
