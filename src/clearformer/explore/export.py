"""Exports a page as one HTML file with the bundle and every response that the page needs.

The file works offline, and its content security policy forbids network access. The responses are
those of the live page: the export sends the same requests to the server itself.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import html
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

from clearformer.explore.export_allowlist import AllowedRequest, parse
from clearformer.explore.limits import EXPORT_SECONDS, MAX_EXPORT_BYTES, MAX_EXPORT_RESPONSES_BYTES
from clearformer.http_server.errors import bad_field, too_big, too_slow

CSP = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"
)

LANGUAGES = ("de", "es", "fr", "zh")  # besides English, which is part of the bundle


class Request(NamedTuple):
    """A request whose response a file contains."""

    path: str
    body: Any = None  # of a POST; None: a GET
    key: str | None = None  # the page's own
    optional: bool = False  # left out if the file would be too large


Allowed = tuple[AllowedRequest, str | None]  # with the page's own key
Fetch = Callable[[str, str, Any], Awaitable[bytes | None]]  # method, path, body -> JSON text


async def page(
    fetch: Fetch,
    view: str,
    state: Mapping[str, Any],
    requests: Iterable[Request],
    known_responses: Mapping[str, Any],
) -> str:
    """The HTML of a view with the responses to its requests, at most 5 MB."""
    # All are checked before one is sent.
    allowed: list[Allowed] = []
    extra: list[Allowed] = []
    for each in requests:
        (extra if each.optional else allowed).append((parse(each.path, each.body), each.key))
    try:
        async with asyncio.timeout(EXPORT_SECONDS):
            return await _page(fetch, view, state, allowed, extra, known_responses)
    except TimeoutError:
        hint = "try again when the models are less busy, or use a shorter text"
        raise too_slow("the export was not complete", EXPORT_SECONDS, hint) from None


async def _page(
    fetch: Fetch,
    view: str,
    state: Mapping[str, Any],
    allowed: list[Allowed],
    extra: list[Allowed],
    known_responses: Mapping[str, Any],
) -> str:
    responses = {**known_responses, **await _fetch_all(fetch, allowed)}
    payload = {"view": view, "state": dict(state), "responses": responses, "only_query": False}
    text = await _render(payload)
    room = MAX_EXPORT_BYTES - len(text.encode())
    if extra and room > 0:
        responses |= await _fetch_while_they_fit(fetch, extra, room)
        text = await _render(payload | {"responses": responses})
    if len(text.encode()) > MAX_EXPORT_BYTES:
        # All queries of a head do not fit, so only the selected one is exported.
        heads = [each for each, _ in allowed if each.path.endswith("/head")]
        responses |= await _fetch_all(fetch, [(_one_query(each, state), None) for each in heads])
        fewer = {
            key: value
            for key, value in responses.items()
            if "/head?" not in key and "/attention?" not in key
        }
        text = await _render({**payload, "responses": fewer, "only_query": True})
    size = len(text.encode())
    if size > MAX_EXPORT_BYTES:
        raise too_big(
            f"the file would have {size:,} bytes, limit {MAX_EXPORT_BYTES:,}", MAX_EXPORT_BYTES
        )
    return text


async def _render(payload: Mapping[str, Any]) -> str:
    """Render the file in a thread, to keep the event loop free."""
    try:
        return await asyncio.to_thread(document, payload)
    except RecursionError:
        raise bad_field("state", "the state of the page is nested too deeply") from None


async def _fetch_while_they_fit(
    fetch: Fetch, allowed: Iterable[Allowed], room: int
) -> dict[str, Any]:
    """The responses up to the first that would make the file too large."""
    responses = {}
    for request, key in allowed:
        text = await fetch(request.method, request.target, request.body)
        if text is None:
            continue
        name, response = key or request.key, json.loads(text)
        room -= len(json.dumps({name: response}).replace("<", "\\u003c"))
        if room < 0:
            break
        responses[name] = response
    return responses


async def _fetch_all(fetch: Fetch, allowed: Iterable[Allowed]) -> dict[str, Any]:
    responses, total = {}, 0
    for request, key in allowed:
        text = await fetch(request.method, request.target, request.body)
        if text is None:
            continue  # it would fail on the live page too
        total += len(text)
        if total > MAX_EXPORT_RESPONSES_BYTES:
            limit = MAX_EXPORT_RESPONSES_BYTES
            raise too_big(f"the responses for this file are too large, limit {limit:,}", limit)
        responses[key or request.key] = json.loads(text)
    return responses


def _one_query(head: AllowedRequest, state: Mapping[str, Any]) -> AllowedRequest:
    selected = state.get("query", state.get("i", 0))
    i = selected if isinstance(selected, int) else 0
    query = tuple(sorted((*head.query, ("i", str(i)))))
    return AllowedRequest(f"{head.path.removesuffix('/head')}/query", query)


def document(payload: Mapping[str, Any], policy: str = CSP) -> str:
    """The HTML file for a payload, under a content security policy."""
    title = html.escape(f"clearformer: {payload['view']}")
    # `<` could end the script element; JSON has another way to write it.
    data = json.dumps(payload, allow_nan=False).replace("<", "\\u003c")
    script = base64.b64encode(static("explorer.js")).decode("ascii")
    style = static("explorer.css").decode("utf-8").replace("</", "<\\/")
    # The file distributes third-party code, so it contains the licences; the build refuses a
    # licence that would end the comment.
    licenses = static("LICENSES.txt").decode("utf-8")
    return (
        f'<!doctype html>\n<!--\n{licenses}-->\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'  # else a browser asks a web server for one
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<div id="explorer"></div>\n'
        f'<script type="application/json" id="languages">{languages()}</script>\n'
        f'<script type="application/json" id="payload">{data}</script>\n'
        f'<script type="module" src="data:text/javascript;base64,{script}"></script>\n'
        "</body>\n</html>\n"
    )


def languages() -> str:
    """The sentences of the page in all languages but English, compressed: JSON without `<`."""
    packed = {
        name: base64.b64encode(gzip.compress(static(f"strings.{name}.json"), mtime=0)).decode()
        for name in LANGUAGES
    }
    return json.dumps(packed)


def static(name: str) -> bytes:
    """A file of the built bundle; empty if it has not been built."""
    try:
        return (files("clearformer.explore") / "static" / name).read_bytes()
    except OSError:
        return b""
