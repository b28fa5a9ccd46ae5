"""One page as one file: the bundle, and every answer that the page needs, in a single HTML.

The file opens anywhere without a network, and its own policy forbids it to ask for any. What it
shows are the answers that the live page would get: the requests are put to the server itself.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

from clearformer.explore.errors import Problem, bad_field
from clearformer.explore.limits import EXPORT_SECONDS, GATHERED, LARGEST_EXPORT
from clearformer.explore.replay import Replay, parse

CSP = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"
)
Request = tuple[str, Any, str | None]  # path, body of a POST, a key of the page's own choice
Ask = Callable[[str, str, Any], Awaitable[bytes | None]]  # method, path, body -> JSON text


async def page(
    ask: Ask,
    view: str,
    state: Mapping[str, Any],
    requests: Iterable[Request],
    given: Mapping[str, Any],
) -> str:
    """The HTML of a view with the answers to its requests, at most 5 MB."""
    wanted = [(parse(path, body), own) for path, body, own in requests]  # all, before any is asked
    try:
        async with asyncio.timeout(EXPORT_SECONDS):
            return await _page(ask, view, state, wanted, given)
    except TimeoutError:
        raise Problem(
            503,
            "too_slow",
            f"the file was not complete in {EXPORT_SECONDS:.0f} s",
            hint="try again when the models are less busy, or use a shorter text",
        ) from None


async def _page(
    ask: Ask,
    view: str,
    state: Mapping[str, Any],
    wanted: list[tuple[Replay, str | None]],
    given: Mapping[str, Any],
) -> str:
    responses = {**given, **await _answers(ask, wanted)}
    payload = {"view": view, "state": dict(state), "responses": responses, "only_query": False}
    text = await _written(payload)
    if len(text.encode()) > LARGEST_EXPORT:
        # All queries of a head do not fit: the one that is looked at stays.
        heads = [each for each, _ in wanted if each.path.endswith("/head")]
        responses |= await _answers(ask, [(_one_query(each, state), None) for each in heads])
        few = {key: value for key, value in responses.items() if "/head?" not in key}
        few = {key: value for key, value in few.items() if "/attention?" not in key}
        text = await _written({**payload, "responses": few, "only_query": True})
    size = len(text.encode())
    if size > LARGEST_EXPORT:
        raise _too_big(f"the file would have {size:,} bytes", LARGEST_EXPORT)
    return text


async def _written(payload: Mapping[str, Any]) -> str:
    """The file, written in a thread: the loop serves everybody else meanwhile."""
    try:
        return await asyncio.to_thread(document, payload)
    except RecursionError:
        raise bad_field("state", "the state of the page is nested too deeply") from None


async def _answers(ask: Ask, wanted: Iterable[tuple[Replay, str | None]]) -> dict[str, Any]:
    found, total = {}, 0
    for each, own in wanted:
        answer = await ask(each.method, each.target, each.body)
        if answer is not None:  # one that fails here would fail on the page too
            total += len(answer)
            if total > GATHERED:
                raise _too_big("the answers for this file are too large", GATHERED)
            found[own or each.key] = json.loads(answer)
    return found


def _too_big(what: str, limit: int) -> Problem:
    message = f"{what}, limit {limit:,}"
    return Problem(413, "too_big", message, hint="shorten the text", limit=limit)


def _one_query(head: Replay, state: Mapping[str, Any]) -> Replay:
    chosen = state.get("query", state.get("i", 0))
    i = chosen if isinstance(chosen, int) else 0
    query = tuple(sorted((*head.query, ("i", str(i)))))
    return Replay(f"{head.path.removesuffix('/head')}/query", query)


def document(payload: Mapping[str, Any]) -> str:
    """The file itself."""
    title = html.escape(f"clearformer: {payload['view']}")
    # `<` would end the element; in JSON it can be written otherwise.
    data = json.dumps(payload, allow_nan=False).replace("<", "\\u003c")
    script = base64.b64encode(static("explorer.js")).decode("ascii")
    style = static("explorer.css").decode("utf-8").replace("</", "<\\/")
    # The file hands out the code of others, so it carries their licences; the build refuses a
    # text that would end the comment.
    licenses = static("LICENSES.txt").decode("utf-8")
    return (
        f'<!doctype html>\n<!--\n{licenses}-->\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
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
