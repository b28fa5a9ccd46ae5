"""A page as one file to hand out."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from clearformer.explore import asgi, export
from clearformer.explore.schemas import ExportAsked

router = APIRouter(prefix="/api")


@router.post("/export", response_class=HTMLResponse)
async def exported(request: Request, asked: ExportAsked) -> HTMLResponse:
    # The gate will look at each request as it looked at this one.
    passes = [pair for pair in request.headers.raw if pair[0] in (b"host", b"cookie")]

    async def ask(method: str, path: str, body: Any) -> Any:
        return await asgi.ask(request.app, method, path, body, passes)

    wanted: list[export.Request] = [
        (each, None, None) if isinstance(each, str) else (each.path, each.body, each.key)
        for each in asked.requests
    ]
    traced = asked.state.get("trace")
    if isinstance(traced, str):  # what the page holds already is not sent twice
        wanted.append((f"/api/traces/{quote(traced, safe='')}", None, "POST /api/traces"))
    text = await export.page(ask, asked.view, asked.state, wanted, asked.responses)
    name = f"clearformer-{asked.view}.html"
    return HTMLResponse(
        text,
        headers={
            "content-disposition": f'attachment; filename="{name}"',
            "content-security-policy": export.CSP,
        },
    )
