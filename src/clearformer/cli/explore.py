"""`clearformer explore [DIR ...]`: inspect what a model computes, in a browser."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from clearformer.cli.output import say, tell

if TYPE_CHECKING:
    from clearformer.config import RunConfig

RUNS = Path("runs")
LINE_ANSWERS = 500  # of --static, between two lines of progress
FIRST_STEPS = 250  # of the model that is trained if there is none: some seconds


@dataclass(frozen=True)
class Explore:
    """Open a local page that shows what your models compute, number by number; works offline."""

    folders: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Runs, folders of runs, or folders of weights; default: runs/."""
    port: int = 0
    """Port to listen on; a free one if it is 0 or taken."""
    browser: bool = True
    """Open a browser (--no-browser: only print the address)."""
    open: str | None = None
    """Step of the course to open, such as heads or positions; the page lists all of them."""
    host: str = "127.0.0.1"
    """Address to listen on; one that other machines can reach needs --token."""
    token: str | None = None
    """Access token, part of the printed address; at least 16 characters."""
    max_tokens: int = 512
    """Maximum length of a text in tokens; up to 1024."""
    allow_bin: bool = False
    """Also read .bin files: only the tensors in them."""
    static: Path | None = None
    """Write the course for these models to a new folder, as files that need no server, and exit."""
    text: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A text of --static that a reader can choose; may be repeated; default: an example for each
    model."""

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
        if self.text and self.static is None:
            raise ValueError("--text is for --static: on the page itself any text can be typed")
        if self.static is not None:
            self._write_files(self.static)
            return
        from clearformer.explore import course
        from clearformer.explore.app import create_app
        from clearformer.explore.library import Library
        from clearformer.explore.limits import Limits
        from clearformer.explore.server import Server
        from clearformer.explore.token_cookie import require_token
        from clearformer.http_server.gate import allowed_hosts

        fragment = "" if self.open is None else course.step(self.open).fragment
        require_token(self.host, self.token)
        limits = Limits(max_tokens=self.max_tokens)
        library = Library(self._model_folders(), allow_bin=self.allow_bin)
        app = create_app(library, token=self.token, hosts=allowed_hosts(self.host), limits=limits)
        server = Server(app, self.host, self.port)
        address = self._address(server.port) + fragment
        if self.port not in (0, server.port):
            tell(f"note: port {self.port} is taken, so another one was chosen")
        count = len(library.models())
        for name, problem in library.problems.items():
            tell(f"note: {name} cannot be opened: {problem}")
        if not count:
            tell("note: there is no model yet; new runs appear on the page")
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

    def _write_files(self, folder: Path) -> None:
        """Write the course as files, and say how large they are."""
        from clearformer.explore import static_site

        static_site.require_own(folder.resolve())
        models = self._model_folders()
        told = 0

        def progress(name: str, answers: int, size: int) -> None:
            nonlocal told
            if answers // LINE_ANSWERS > told:
                told = answers // LINE_ANSWERS
                say(f"  {name}: {answers:,} answers, {size / 2**20:.1f} MB", flush=True)

        site = static_site.write(
            folder,
            models,
            text=self.text,
            max_tokens=self.max_tokens,
            allow_bin=self.allow_bin,
            progress=progress,
        )
        size = site.bytes / 2**20
        say(
            f"wrote {site.folder}: {site.files} files, {size:.1f} MB, {site.answers:,} answers; "
            f"open {site.folder / 'index.html'}, or put the folder on any web server"
        )

    def _address(self, port: int) -> str:
        from urllib.parse import quote

        from clearformer.http_server.gate import bracketed

        name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, bracketed(self.host))
        secret = "" if self.token is None else f"?token={quote(self.token, safe='')}"
        return f"http://{name}:{port}/{secret}"

    def _model_folders(self) -> list[Path]:
        """The folders with models; if there are none, a small model is trained."""
        from clearformer.explore.library import is_model

        for folder in self.folders:
            if not folder.exists():
                raise ValueError(f"there is no folder {folder}: give a run, or leave it out")
            if not folder.is_dir() and not is_model(folder):
                raise ValueError(
                    f"{folder} is not a folder: give a run, a folder of runs, or of weights"
                )
        if self.folders:
            return list(self.folders)
        if RUNS.is_dir() and any(is_model(each) for each in RUNS.iterdir()):
            return [RUNS]
        return [RUNS, first_model()]


def first_model() -> Path:
    """A small language model, trained once for some seconds on Python's documentation."""
    from clearformer.cli.train import places
    from clearformer.runs.load import best_checkpoint
    from clearformer.runs.run import Run
    from clearformer.training.events import Evaluation

    data_places = places(None)
    assert data_places.cache is not None
    folder = data_places.cache / "explore" / "first"
    try:
        best_checkpoint(folder)
    except ValueError:
        say(
            "there are no runs here, so a small model is trained on Python's documentation "
            "(some seconds, once)",
            flush=True,
        )
        run = Run(
            first_config(),
            folder,
            data_places,
            resume=True,
            say=_ignore,
            sample=lambda run, model: run.task.sample(model),
        )
        for event in run.events():
            if isinstance(event, Evaluation):
                loss = event.figures["loss"]
                say(f"  step {event.step} of {FIRST_STEPS}: loss {loss:.2f}", flush=True)
    return folder


def first_config() -> RunConfig:
    """A small GPT-2 with a BPE tokenizer."""
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
        learning_rate=0.02,
        batch_size=8,
        steps=FIRST_STEPS,
        optimizer=Muon(adam_learning_rate=3e-3, adam=AdamW(weight_decay=0.0)),
        schedule=StableThenDecay(warmup=20, decay=0.5),
        evaluations=5,
        log_checkpoints=True,
        compile="off",
        precision="float32",  # bfloat16 is slower for a model of this size
    )
    return RunConfig(model=model, data=data, train=train)


def _ignore(message: str) -> None:
    """Drop the notes about the training data."""


def _count(models: int) -> str:
    return f"{models} model" if models == 1 else f"{models} models"


def _has_screen() -> bool:
    """Whether there is a display: a text browser would take over the terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
