"""Metrics of the server, in the format of Prometheus."""

from __future__ import annotations

import time
from collections.abc import Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one server; each name begins with `clearformer_`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        register = self.registry
        self.requests = Counter(
            "clearformer_requests", "HTTP responses", ["route", "status"], registry=register
        )
        self.seconds = Histogram(
            "clearformer_request_seconds",
            "Time from a request to the end of its response",
            ["route"],
            buckets=SECONDS,
            registry=register,
        )
        self.first_token = Histogram(
            "clearformer_first_token_seconds",
            "Time from a request to the first token of a text",
            ["model"],
            buckets=SECONDS,
            registry=register,
        )
        self.batch = Histogram(
            "clearformer_batch_texts",
            "Batch size of a decoding step",
            ["model"],
            buckets=ROWS,
            registry=register,
        )
        self.prompt_tokens = Counter(
            "clearformer_prompt_tokens", "Prompt tokens", ["model"], registry=register
        )
        self.generated_tokens = Counter(
            "clearformer_generated_tokens", "Generated tokens", ["model"], registry=register
        )
        self.abandoned = Counter(
            "clearformer_abandoned_texts",
            "Texts cancelled because the client disconnected or the time limit was reached",
            ["model"],
            registry=register,
        )
        self.running = Gauge(
            "clearformer_running_texts", "Texts being generated", ["model"], registry=register
        )
        self.waiting = Gauge(
            "clearformer_waiting_texts", "Texts waiting in the queue", ["model"], registry=register
        )
        self.in_flight = 0  # requests that have not been answered

    def text(self) -> bytes:
        return generate_latest(self.registry)


class MetricsMiddleware:
    """Counts responses by route and status; unknown paths count as "other"."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: Collection[str]) -> None:
        self.app = app
        self.metrics = metrics
        self.routes = frozenset(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        route = scope["path"] if scope["path"] in self.routes else "other"
        status, start = 499, time.monotonic()  # 499: gone before the response began

        async def counting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.metrics.in_flight += 1
        try:
            await self.app(scope, receive, counting)
        finally:
            self.metrics.in_flight -= 1
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.monotonic() - start)
