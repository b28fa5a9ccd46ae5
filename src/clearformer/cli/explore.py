"""`clearformer explore [DIR ...]`: see every step of a model, with its numbers, in a browser."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from clearformer.cli.output import say, tell

if TYPE_CHECKING:
    from clearformer.config import RunConfig

RUNS = Path("runs")
FIRST_STEPS = 250  # of training, if there is nothing to look at: some seconds


@dataclass(frozen=True)
class Explore:
    """Open a page that shows your models at work, number by number; needs no internet."""

    folders: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Runs, folders of runs, or folders of weights; none: runs/."""
    port: int = 0
    """Where to listen; 0, or a port that is taken: a free one."""
    browser: bool = True
    """Open a browser (--no-browser: only print the address)."""
    host: str = "127.0.0.1"
    """Another address than this machine's own: others can reach it, so give --token."""
    token: str | None = None
    """Only who opens the printed address may look; at least 16 characters."""
    max_tokens: int = 512
    """Longest text, in tokens; up to 1024."""
    allow_bin: bool = False
    """Also read .bin files: the tensors in them, and nothing else."""

    def run(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port is {self.port}, but it must be from 0 to 65535")
        try:
            import fastapi  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError as missing:
            raise ValueError(
                f"the explorer needs {missing.name}: pip install 'clearformer[explore]'"
            ) from None
        from clearformer.explore.app import create_app
        from clearformer.explore.library import Library
        from clearformer.explore.limits import Limits
        from clearformer.explore.security import allowed_hosts, require_token
        from clearformer.explore.server import Server

        require_token(self.host, self.token)
        limits = Limits(max_tokens=self.max_tokens)
        library = Library(self._places(), allow_bin=self.allow_bin)
        app = create_app(library, token=self.token, hosts=allowed_hosts(self.host), limits=limits)
        server = Server(app, self.host, self.port)
        address = self._address(server.port)
        if self.port not in (0, server.port):
            tell(f"note: port {self.port} is taken, so another one was chosen")
        count = len(library.models())
        for name, problem in library.problems.items():
            tell(f"note: {name} cannot be opened: {problem}")
        if not count:
            tell("note: there is no model in it yet; runs that appear are shown")
        say(f"explore {_count(count)} at {address} (Ctrl-C ends)", flush=True)
        if self.browser and _has_screen():
            import threading
            import webbrowser

            threading.Timer(0.3, webbrowser.open, (address,)).start()
        library.warm()
        try:
            server.serve_here()
        except KeyboardInterrupt:
            say()

    def _address(self, port: int) -> str:
        from urllib.parse import quote

        from clearformer.explore.security import bracketed

        name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, bracketed(self.host))
        secret = "" if self.token is None else f"?token={quote(self.token, safe='')}"
        return f"http://{name}:{port}/{secret}"

    def _places(self) -> list[Path]:
        """The folders to look in; with nothing to look at, a small model is made."""
        from clearformer.explore.library import is_model

        for folder in self.folders:
            if not folder.exists():
                raise ValueError(f"there is no folder {folder}: give a run, or leave it out")
            if not folder.is_dir() and not is_model(folder):
                raise ValueError(
                    f"{folder} is no folder: give a run, a folder of runs, or a folder of weights"
                )
        if self.folders:
            return list(self.folders)
        if RUNS.is_dir() and any(is_model(each) for each in RUNS.iterdir()):
            return [RUNS]
        return [RUNS, first_model()]


def first_model() -> Path:
    """A small generator, trained for some seconds on Python's own documentation, once."""
    from clearformer.cli.train import places, sample
    from clearformer.runs.load import best_checkpoint
    from clearformer.runs.run import Run
    from clearformer.train.events import Evaluation

    where = places(None)
    assert where.cache is not None
    folder = where.cache / "explore" / "first"
    try:
        best_checkpoint(folder)
    except ValueError:
        say(
            "there are no runs here, so a small model is trained on Python's documentation "
            "(some seconds, once)",
            flush=True,
        )
        run = Run(first_config(), folder, where, resume=True, say=_nothing, sample=sample)
        for event in run.events():
            if isinstance(event, Evaluation):
                loss = event.figures["loss"]
                say(f"  step {event.step} of {FIRST_STEPS}: loss {loss:.2f}", flush=True)
    return folder


def first_config() -> RunConfig:
    """GPT-2 in small: learned positions, words in pieces."""
    from clearformer.config import (
        AdamW,
        DataConfig,
        Dropout,
        Muon,
        RunConfig,
        StableThenDecay,
        TrainConfig,
    )
    from clearformer.families import preset

    model = replace(
        preset("gpt2"),
        name="gpt2-first",
        vocabulary=1024,
        length=128,
        layers=3,
        width=64,
        heads=4,
        hidden=256,
        dropout=Dropout(),
    )
    data = DataConfig(source="python-docs", tokenizer="bpe", vocabulary=1024)
    train = TrainConfig(
        lr=0.02,
        batch=8,
        steps=FIRST_STEPS,
        optimizer=Muon(adam_lr=3e-3, adam=AdamW(weight_decay=0.0)),
        schedule=StableThenDecay(warmup=20, decay=0.5),
        evaluations=5,
        keep=5,
        compile="off",
        precision="float32",  # so small that half of it is slower
    )
    return RunConfig(model=model, data=data, train=train)


def _nothing(sentence: str) -> None:
    """What is to be known of the data is of no use to somebody who only looks."""


def _count(models: int) -> str:
    return f"{models} model" if models == 1 else f"{models} models"


def _has_screen() -> bool:
    """Whether a browser could show anything; one for terminals would take this one over."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
