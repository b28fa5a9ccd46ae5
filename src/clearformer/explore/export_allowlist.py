"""Allow list of the requests whose responses an exported page may contain.

A request is parsed and built again from what matched, so that the checked path is the requested
path. Everything else is refused: streams, requests that change something, encoded or relative
paths, unknown or repeated parameters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from clearformer.http_server.errors import Problem, bad_field

ID = r"[A-Za-z0-9_-]{1,100}"  # of a model, a run or a trace
CELL = ("layer", "head", "part")
# The GET routes of the page, with their parameters.
GET_ROUTES: dict[str, tuple[str, ...]] = {
    "/api/info": (),
    "/api/models": (),
    "/api/models/{id}/parameters": (),
    "/api/models/{id}/blueprint": (),
    "/api/models/{id}/tokens": ("ids",),
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
    "/api/traces/{id}/mlp": ("layer", "i", "k", "part"),
    "/api/traces/{id}/unit": ("layer", "i", "j", "part"),
    "/api/traces/{id}/norm": ("layer", "i", "which", "part"),
    "/api/traces/{id}/flow": (),
}
# The POST routes that compute something and change nothing.
POST_ROUTES = (
    "/api/probe", "/api/permute", "/api/attribute", "/api/corrupt", "/api/coding", "/api/compare",
    "/api/map", "/api/neighbours", "/api/beams",
)  # fmt: skip
PATTERNS = {
    re.compile(re.escape(path).replace(r"\{id\}", ID)): frozenset(names)
    for path, names in GET_ROUTES.items()
}


@dataclass(frozen=True)
class AllowedRequest:
    """A request that an export may send."""

    path: str
    query: tuple[tuple[str, str], ...] = ()  # sorted by name
    body: Any = None  # of a POST; None: a GET

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def key(self) -> str:
        """The key of the response in the page: a GET with sorted query, a POST by path alone."""
        return f"{self.method} {self.target}"


def parse(target: str, body: Any = None) -> AllowedRequest:
    """The request for a target; a Problem if it is not allowed."""
    path, question_mark, query = target.partition("?")
    if body is not None:
        if path not in POST_ROUTES or question_mark:
            raise refused(target)
        return AllowedRequest(path, body=body)
    for pattern, names in PATTERNS.items():
        if pattern.fullmatch(path):
            return AllowedRequest(path, tuple(sorted(_parameters(target, query, names))))
    raise refused(target)


def _parameters(target: str, query: str, names: frozenset[str]) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=len(names) or 1)
    except ValueError:  # more fields than names
        raise refused(target) from None
    used = [name for name, _ in pairs]
    if not names.issuperset(used) or len(set(used)) < len(used):
        raise refused(target)
    return pairs


def is_id(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(ID, text) is not None


def refused(target: str) -> Problem:
    return bad_field("requests", f"{target[:80]} cannot be exported")
