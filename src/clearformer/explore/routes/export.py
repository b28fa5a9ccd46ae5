"""A page as one file to hand out."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from clearformer.explore import asgi, export
from clearformer.explore.explorer import Here
from clearformer.explore.replay import is_id
from clearformer.explore.requests import ExportAsked

router = APIRouter(prefix="/api")
GONE = 499  # a client that has closed its connection: the number that nginx gives it


@router.post("/export", response_class=HTMLResponse)
async def exported(here: Here, request: Request, asked: ExportAsked) -> HTMLResponse:
    # The gate will look at each request as it looked at this one.
    passes = [pair for pair in request.headers.raw if pair[0] in (b"host", b"cookie")]

    async def ask(method: str, path: str, body: Any) -> bytes | None:
        if await request.is_disconnected():
            raise HTTPException(GONE, "nobody waits for this file any more")
        return await asgi.ask(request.app, method, path, body, passes)

    wanted: list[export.Request] = [
        (each, None, None) if isinstance(each, str) else (each.path, each.body, each.key)
        for each in asked.requests
    ]
    traced = asked.state.get("trace")
    if is_id(traced):  # what the page holds already is not sent twice
        wanted.append((f"/api/traces/{traced}", None, "POST /api/traces"))
    with here.exports.taken():
        text = await export.page(ask, asked.view, asked.state, wanted, asked.responses)
    name = f"clearformer-{asked.view}.html"
    return HTMLResponse(
        text,
        headers={
            "content-disposition": f'attachment; filename="{name}"',
            "content-security-policy": export.CSP,
        },
    )
