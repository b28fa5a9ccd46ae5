"""The FastAPI application of the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import FastAPI
from starlette.responses import HTMLResponse, RedirectResponse, Response

import clearformer
from clearformer.http_server.error_handlers import add_error_handlers
from clearformer.http_server.gate import LOOPBACK, AccessMiddleware, HostMiddleware
from clearformer.model import Model
from clearformer.serve import routes
from clearformer.serve.api_keys import ApiKeys
from clearformer.serve.errors import api_error
from clearformer.serve.limits import MAX_BODY_BYTES, THREADS, ServeLimits
from clearformer.serve.metrics import Metrics, MetricsMiddleware
from clearformer.serve.reference_page import reference_page
from clearformer.serve.served_model import ServedModel
from clearformer.serve.service import Service

ROUTERS = (routes.openai, routes.others, routes.operation)
PAGES = ("/", "/docs")


def create_app(
    models: Mapping[str, Model],
    *,
    api_keys: Sequence[str] = (),
    hosts: Sequence[str] = LOOPBACK,
    limits: ServeLimits = ServeLimits(),
) -> FastAPI:
    """The API server for models by name, under the given host names."""
    metrics = Metrics()
    served = [ServedModel(name, model, limits, metrics) for name, model in models.items()]
    service = Service(served, limits, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        service.close()

    app = FastAPI(
        title="clearformer serve",
        version=clearformer.__version__,
        # FastAPI's own pages would load scripts from another host.
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=lifespan,
    )
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router)

    async def docs() -> Response:
        return HTMLResponse(reference_page(app.openapi()))

    async def index() -> Response:
        return RedirectResponse("/docs")

    app.add_api_route("/docs", docs, include_in_schema=False)
    app.add_api_route("/", index, include_in_schema=False)
    add_error_handlers(app, api_error)
    # The middleware that is added last runs first.
    app.add_middleware(
        AccessMiddleware,
        authorize=ApiKeys(api_keys),
        respond=api_error,
        max_body=MAX_BODY_BYTES,
        linked=PAGES,
    )
    app.add_middleware(HostMiddleware, allowed_hosts=hosts, respond=api_error)
    known = [*app.openapi()["paths"], *PAGES]
    app.add_middleware(MetricsMiddleware, metrics=metrics, routes=known)
    return app
