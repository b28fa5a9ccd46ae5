"""Route for the export of a page as one file."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from clearformer.explore import export, in_process_client
from clearformer.explore.explorer import CurrentExplorer
from clearformer.explore.export_allowlist import is_id
from clearformer.explore.requests import ExportRequest

router = APIRouter(prefix="/api")
CLIENT_CLOSED = 499  # the client has closed its connection; the status code of nginx


@router.post("/export", response_class=HTMLResponse)
async def export_page(
    explorer: CurrentExplorer, http: Request, request: ExportRequest
) -> HTMLResponse:
    # Each request passes the same access checks as this one.
    credentials = [pair for pair in http.headers.raw if pair[0] in (b"host", b"cookie")]

    async def fetch(method: str, path: str, body: Any) -> bytes | None:
        if await http.is_disconnected():
            raise HTTPException(CLIENT_CLOSED, "the client has closed the connection")
        return await in_process_client.request_json(http.app, method, path, body, credentials)

    requests: list[export.Request] = [
        export.Request(each)
        if isinstance(each, str)
        else export.Request(each.path, each.body, each.key, each.optional)
        for each in request.requests
    ]
    trace = request.state.get("trace")
    if is_id(trace):  # a response that the page holds already is not uploaded
        requests.append(export.Request(f"/api/traces/{trace}", key="POST /api/traces"))
    with explorer.exports.acquire():
        text = await export.page(fetch, request.view, request.state, requests, request.responses)
    return HTMLResponse(
        text,
        headers={
            "content-disposition": f'attachment; filename="clearformer-{request.view}.html"',
            "content-security-policy": export.CSP,
        },
    )
