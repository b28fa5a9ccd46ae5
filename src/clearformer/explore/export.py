"""One page as one file: the bundle, and every answer that the page needs, in a single HTML.

The file opens anywhere without a network, and its own policy forbids it to ask for any. What it
shows are the answers that the live page would get: the requests are put to the server itself.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from clearformer.explore.errors import Problem, bad_field
from clearformer.explore.limits import LARGEST_EXPORT

CSP = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"
)
# What may not be put into a file: streams, and what changes something.
LEFT_OUT = ("/api/export", "/api/generate", "/stop", "/events")
Request = tuple[str, Any, str | None]  # path, body of a POST, a key of the page's own choice
Ask = Callable[[str, str, Any], Awaitable[Any]]  # method, path, body -> JSON


async def page(
    ask: Ask,
    view: str,
    state: Mapping[str, Any],
    requests: Iterable[Request],
    given: Mapping[str, Any],
) -> str:
    """The HTML of a view with the answers to its requests, at most 5 MB."""
    asked = list(requests)
    responses = {**given, **await _answers(ask, asked)}
    payload = {"view": view, "state": dict(state), "responses": responses, "only_query": False}
    text = document(payload)
    if len(text.encode()) > LARGEST_EXPORT:
        # All queries of a head do not fit: the one that is looked at stays.
        heads = [path for path, _, _ in asked if "/head?" in path]
        responses |= await _answers(ask, [(_one_query(path, state), None, None) for path in heads])
        few = {key: value for key, value in responses.items() if "/head?" not in key}
        few = {key: value for key, value in few.items() if "/attention?" not in key}
        text = document({**payload, "responses": few, "only_query": True})
    size = len(text.encode())
    if size > LARGEST_EXPORT:
        raise Problem(
            413,
            "too_big",
            f"the file would have {size:,} bytes, limit {LARGEST_EXPORT:,}",
            hint="shorten the text",
            limit=LARGEST_EXPORT,
        )
    return text


async def _answers(ask: Ask, requests: Iterable[Request]) -> dict[str, Any]:
    found = {}
    for path, body, own in requests:
        place = urlsplit(path).path
        if not place.startswith("/api/") or any(word in place for word in LEFT_OUT):
            raise bad_field("requests", f"{path[:80]} cannot be put into a file")
        method = "GET" if body is None else "POST"
        answer = await ask(method, path, body)
        if answer is not None:  # one that fails here would fail on the page too
            found[own or key(method, path)] = answer
    return found


def key(method: str, path: str) -> str:
    """How a page finds an answer: the path with its query sorted; a POST by its path alone."""
    parts = urlsplit(path)
    query = urlencode(sorted(parse_qsl(parts.query)))
    return f"{method} {parts.path}{f'?{query}' if query else ''}"


def _one_query(path: str, state: Mapping[str, Any]) -> str:
    chosen = state.get("query", state.get("i", 0))
    i = chosen if isinstance(chosen, int) else 0
    return f"{path.replace('/head?', '/query?')}&i={i}"


def document(payload: Mapping[str, Any]) -> str:
    """The file itself."""
    title = html.escape(f"clearformer: {payload['view']}")
    # `<` would end the element; in JSON it can be written otherwise.
    data = json.dumps(payload, allow_nan=False).replace("<", "\\u003c")
    script = base64.b64encode(static("explorer.js")).decode("ascii")
    style = static("explorer.css").decode("utf-8").replace("</", "<\\/")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CSP}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<div id="explorer"></div>\n'
        f'<script type="application/json" id="payload">{data}</script>\n'
        f'<script type="module" src="data:text/javascript;base64,{script}"></script>\n'
        "</body>\n</html>\n"
    )


def static(name: str) -> bytes:
    """A file of the built bundle; nothing if it has not been built."""
    try:
        return (files("clearformer.explore") / "static" / name).read_bytes()
    except OSError:
        return b""
