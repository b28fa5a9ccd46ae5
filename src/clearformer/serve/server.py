"""The server itself: it drains before it closes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from fastapi import FastAPI

from clearformer.adapters.shared_base import with_adapter
from clearformer.arguments import Weights
from clearformer.http_server import server
from clearformer.http_server.gate import allowed_hosts
from clearformer.model import Model, load
from clearformer.runs.adapter_base import open_beside
from clearformer.serve.api_keys import require_keys
from clearformer.serve.app import create_app
from clearformer.serve.limits import MAX_CONNECTIONS, ServeLimits
from clearformer.serve.service import Service


class Server(server.Server):
    """Serves an application of `create_app`; SIGTERM and Ctrl-C let requests in progress end."""

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        super().__init__(app, host, port, MAX_CONNECTIONS)
        if port not in (0, self.port):
            taken = self.socket
            taken.close()
            raise ValueError(f"port {port} of {host} is taken: choose another with --port")

    @property
    def shutdown_seconds(self) -> float:
        service: Service = self.app.state.service
        return service.limits.drain_seconds + super().shutdown_seconds

    async def before_shutdown(self) -> None:
        service: Service = self.app.state.service
        await service.drain(lambda: self.force_exit)

    def serve_here(self) -> None:
        if threading.current_thread() is threading.main_thread():
            # uvicorn raises the signal again once it has closed: a drained server has succeeded.
            signal.signal(signal.SIGTERM, lambda *_: None)
        super().serve_here()


def open_models(
    paths: Sequence[str | os.PathLike[str]],
    *,
    device: str = "cpu",
    weights: Weights = "float32",
    max_batch: int = ServeLimits.max_batch,
    adapters: Mapping[str, str | os.PathLike[str]] = MappingProxyType({}),
) -> dict[str, Model]:
    """The models of these folders or files by their names, arranged for up to `max_batch` texts.

    `adapters` are runs with adapters for the one model in `paths`, by the names that requests give.
    """
    if not paths:
        raise ValueError("there is no model to serve: give at least one run")
    models: dict[str, Model] = {}
    for path in paths:
        name = Path(path).resolve().name.removesuffix(".safetensors").removesuffix(".gguf")
        if name in models:
            raise ValueError(f"two models have the name {name}: rename the folder of one")
        model = load(path, device=device, weights=weights)
        if model.device.type == "cpu" and weights == "float32":
            # Packed for at least two rows, which then cost the same as one (docs/adr, 18).
            model.optimize(max(2, max_batch))
        models[name] = model
    if adapters:
        if len(models) != 1:
            raise ValueError("adapters are for one model: serve one run with --adapter")
        base = next(iter(models.values()))
        if weights != "float32":
            raise ValueError("--adapter needs float32 weights: leave --weights out")
        for name, path in adapters.items():
            if name in models:
                raise ValueError(f"two models have the name {name}: give the adapter another name")
            models[name] = _with_adapter(base, Path(path), max(2, max_batch))
    return models


def read_adapters(words: Sequence[str]) -> dict[str, str]:
    """Adapters by name, from words like NAME=RUN."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not name or not equals or not path or name in found:
            raise ValueError(f"--adapter is {word!r:.80}, but it must be NAME=RUN, each name once")
        found[name] = path
    return found


def _with_adapter(base: Model, path: Path, rows: int) -> Model:
    """The model of an adapter's run, which shares the matrices of `base` if it can."""
    if base.checkpoint is None:
        raise ValueError(
            f"{base.name} is not a run, and an adapter belongs to a run: import it first"
        )
    own = load(path, device=str(base.device))  # refuses what does not fit
    adapted = open_beside(path, base.checkpoint)
    if adapted is None:
        own.notes += (
            f"{path} has a new head, or was trained beside bfloat16 or int8 matrices: it is served "
            f"with matrices of its own, which take more memory",
        )
        return own.optimize(rows) if base.device.type == "cpu" else own
    model = Model(
        with_adapter(base.module, adapted.to(base.device)),
        own.config,
        own.tokenizer,
        run_config=own.run_config,
        path=path,
        checkpoint=own.checkpoint,
        notes=own.notes,
    )
    return model.optimize(rows) if base.device.type == "cpu" else model


def make_server(
    models: dict[str, Model],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_keys: Sequence[str] = (),
    limits: ServeLimits = ServeLimits(),
) -> Server:
    """A server for these models, bound to its port; start it by `serve_here` or `in_background`."""
    if not 0 <= port <= 65_535:
        raise ValueError(f"port is {port}, but it must be from 0 to 65535")
    require_keys(host, api_keys)
    app = create_app(models, api_keys=api_keys, hosts=allowed_hosts(host), limits=limits)
    return Server(app, host, port)
