"""`clearformer serve RUN [RUN ...]`: an HTTP server that speaks the OpenAI API."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from clearformer.arguments import Weights
from clearformer.cli.generated import note
from clearformer.cli.output import say

KEYS = "CLEARFORMER_API_KEYS"


@dataclass(frozen=True)
class Serve:
    """Serve models over HTTP with the OpenAI API."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Runs, Hugging Face folders, or exported files; the folder's name is the model's.
    """
    adapter: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """NAME=RUN: also serve the model with the adapter of this run, under this name; may be
    repeated."""
    host: str = "127.0.0.1"
    """Address to listen on; any but loopback needs --api-keys."""
    port: int = 8000
    """Port to listen on; 0 chooses a free one."""
    api_keys: Path | None = None
    """File with one API key on each line; default: the comma-separated keys in
    $CLEARFORMER_API_KEYS, if set."""
    max_batch: int = 16
    """Largest number of texts generated in one batch."""
    max_queue: int = 256
    """Largest number of waiting texts; further ones get status 429."""
    max_tokens: int = 4096
    """Largest max_tokens that a request may ask for."""
    timeout: float = 600.0
    """Time limit of a request, in seconds."""
    drain_seconds: float = 30.0
    """Time for running requests to finish after SIGTERM or Ctrl-C, in seconds."""
    device: str = "cpu"
    """Device: cpu, cuda, mps, or auto for the fastest available."""
    weights: Weights = "float32"
    """int8: smaller and faster on a CPU, slightly less accurate; int4: smaller still."""

    def run(self) -> None:
        from clearformer.serve.api_keys import read_keys, require_keys
        from clearformer.serve.limits import ServeLimits
        from clearformer.serve.server import make_server, open_models, read_adapters

        limits = ServeLimits(
            max_batch=self.max_batch,
            max_queue=self.max_queue,
            max_tokens=self.max_tokens,
            timeout=self.timeout,
            drain_seconds=self.drain_seconds,
        )
        given = [key for key in os.environ.get(KEYS, "").split(",") if key]
        keys = given if self.api_keys is None else read_keys(self.api_keys)
        require_keys(self.host, keys)  # before the models are opened, which may take long
        models = open_models(
            self.folders,
            device=self.device,
            weights=self.weights,
            max_batch=self.max_batch,
            adapters=read_adapters(self.adapter),
        )
        for model in models.values():
            note(*model.notes)
        server = make_server(models, host=self.host, port=self.port, api_keys=keys, limits=limits)
        from clearformer.http_server.gate import bracketed

        address = f"http://{bracketed(self.host)}:{server.port}"
        say(f"serving {', '.join(models)} at {address}/v1 (Ctrl-C ends)", flush=True)
        try:
            server.serve_here()
        except KeyboardInterrupt:
            say()
