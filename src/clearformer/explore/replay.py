"""The requests whose answers a saved page may hold: an allow list of routes and parameters.

A request is taken apart here and put together again from what matched, so the path that was
checked is the path that is asked. Everything else is refused: streams, whatever changes
something, encoded or relative paths, unknown or repeated parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from clearformer.explore.errors import Problem, bad_field

ID = r"[A-Za-z0-9_-]{1,100}"  # of a model, a run or a trace: ids that the server gave out
CELL = ("layer", "head", "part")
# Each GET route that a page asks, with the parameters that it takes.
READ: dict[str, tuple[str, ...]] = {
    "/api/info": (),
    "/api/models": (),
    "/api/models/{id}/parameters": (),
    "/api/source": ("symbol",),
    "/api/scaling": ("d", "n", "seed"),
    "/api/patterns": ("kind", "n", "stride", "layers", "summary"),
    "/api/memory": ("segment", "memory", "layers", "segments"),
    "/api/positions": ("model", "checkpoint"),
    "/api/runs": (),
    "/api/runs/{id}/metrics": ("since",),
    "/api/traces/{id}": (),
    "/api/traces/{id}/attention": (*CELL, "stage"),
    "/api/traces/{id}/head": CELL,
    "/api/traces/{id}/query": (*CELL, "i"),
    "/api/traces/{id}/projection": (*CELL, "i", "which", "d"),
    "/api/traces/{id}/logits": ("i",),
    "/api/traces/{id}/residual": ("layer", "i", "part"),
    "/api/traces/{id}/lens": ("k", "track"),
    "/api/traces/{id}/mlp": ("layer", "i", "k"),
}
# Each POST that computes something and changes nothing.
COMPUTED = ("/api/probe", "/api/permute", "/api/attribute", "/api/corrupt", "/api/compare")
PATTERNS = {
    re.compile(re.escape(path).replace(r"\{id\}", ID)): frozenset(names)
    for path, names in READ.items()
}


@dataclass(frozen=True)
class Replay:
    """One request that may be put to the server again."""

    path: str
    query: tuple[tuple[str, str], ...] = ()  # sorted by name
    body: Any = None  # of a POST; none: a GET

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def key(self) -> str:
        """How a page finds the answer: a GET with its query sorted, a POST by its path alone."""
        return f"{self.method} {self.target}"


def parse(target: str, body: Any = None) -> Replay:
    """The request that this target names; a Problem if it is not on the list."""
    path, mark, query = target.partition("?")
    if body is not None:
        if path not in COMPUTED or mark:
            raise refused(target)
        return Replay(path, body=body)
    for pattern, names in PATTERNS.items():
        if pattern.fullmatch(path):
            return Replay(path, tuple(sorted(_parameters(target, query, names))))
    raise refused(target)


def _parameters(target: str, query: str, names: Iterable[str]) -> list[tuple[str, str]]:
    known = frozenset(names)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=len(known) or 1)
    except ValueError:  # more fields than there are names
        raise refused(target) from None
    given = [name for name, _ in pairs]
    if not known.issuperset(given) or len(set(given)) < len(given):
        raise refused(target)
    return pairs


def is_id(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(ID, text) is not None


def refused(target: str) -> Problem:
    return bad_field("requests", f"{target[:80]} cannot be put into a file")
