"""Writes the explorer as plain files that any web server or a USB stick shows, offline.

`index.html` is a saved page with the bundle and a list of the requests that the files answer. The
answers are scripts in `data/`, since a page from `file://` may load scripts and nothing else. The
content security policy allows these scripts and the bundle, and no other host.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from clearformer.explore import export, in_process_client, static_requests
from clearformer.explore.app import create_app
from clearformer.explore.library import Library
from clearformer.explore.limits import Limits

CSP = "default-src 'none'; script-src 'self' data:; style-src 'unsafe-inline'; img-src data:"
MANIFEST = "clearformer.json"  # names the files, so that only our own are ever replaced
CHUNK_BYTES = 256 * 2**10
DEFAULTS = {"mask": "model", "positions": True}  # of a request, and left out of its key


class Site(NamedTuple):
    """What was written."""

    folder: Path
    files: int
    bytes: int
    answers: int


def write(
    static: str | Path,
    folders: Sequence[str | Path] = (),
    *,
    text: Sequence[str] = (),
    max_tokens: int = 512,
    allow_bin: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Site:
    """Write the course for the models in `folders`, with their texts, to the folder `static`.

    `progress` is called with the name of a model, the answers so far and their bytes.
    """
    target = Path(static).resolve()
    require_own(target)
    if any(not each.strip() for each in text):
        raise ValueError("text is empty: give a text that the models can read, or leave it out")
    library = Library([Path(each) for each in folders], allow_bin=allow_bin)
    try:
        if not library.models():
            places = ", ".join(str(each) for each in folders) or "no folders"
            raise ValueError(f"there is no model in {places}: give a run or a folder of weights")
        partial = target.with_name(f".{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            writer = Writer(partial, create_app(library, limits=Limits(max_tokens=max_tokens)))
            _run(writer.run(list(text), progress))
            written = sorted(each for each in partial.rglob("*") if each.is_file())
            if target.exists():
                shutil.rmtree(target)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    finally:
        library.close()
    total = sum((target / each.relative_to(partial)).stat().st_size for each in written)
    return Site(target, len(written), total, len(writer.index))


def require_own(folder: Path) -> None:
    """A ValueError unless the folder is new, empty, or holds only what `write` wrote."""
    if not folder.exists():
        if not folder.parent.is_dir():
            raise ValueError(f"there is no folder {folder.parent} to write {folder.name} to")
        return
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file: give the name of a new folder")
    found = {str(each.relative_to(folder)) for each in folder.rglob("*") if not each.is_dir()}
    try:
        names = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        own = {*(str(Path(each)) for each in names), MANIFEST}
    except (OSError, ValueError, TypeError, KeyError):
        own = set()
    if foreign := sorted(found - own):
        raise ValueError(
            f"{folder} holds other files, such as {foreign[0]}: give a new or an empty folder"
        )


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, also where a loop is running already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


class Writer:
    """Sends the requests to the application, and writes the answers."""

    def __init__(self, folder: Path, app: Any) -> None:
        self.folder = folder
        self.app = app
        self.index: dict[str, int] = {}  # key of a request -> number of its file
        self.traces: dict[str, Any] = {}
        self.pending: dict[str, Any] = {}
        self.pending_bytes = 0
        self.files = 0
        self.bytes = 0
        self.tell: Callable[[], None] = lambda: None

    async def run(self, texts: list[str], progress: Callable[[str, int, int], None] | None) -> None:
        (self.folder / "data").mkdir(parents=True)
        models = [self._model(each, texts) for each in await self._fetch("/api/models")]
        name = "lessons"
        if progress is not None:
            self.tell = lambda: progress(name, len(self.index), self.bytes + self.pending_bytes)
        self._keep("GET /api/models", models)
        self._keep("GET /api/info", {**await self._fetch("/api/info"), "problems": {}})
        await static_requests.common(self.ask)
        known = {each["id"] for each in models}
        runs = [each for each in await self._fetch("/api/runs") if each["id"] in known]
        self._keep("GET /api/runs", runs)
        for run in runs:
            await self.ask(f"/api/runs/{run['id']}/metrics")
        for model in models:
            name = model["name"]
            plan = await static_requests.of_model(self.ask, model)
            for each in texts or [model["sample"]]:
                if not await static_requests.of_text(self.ask, model, plan, each):
                    raise ValueError(
                        f"{name} cannot read the text {each[:60]!r}: give a shorter one"
                    )
        self._flush()
        self._write("index.html", self._page(texts))
        self._write("LICENSES.txt", export.static("LICENSES.txt").decode("utf-8"))
        names = sorted(
            each.relative_to(self.folder).as_posix()
            for each in self.folder.rglob("*")
            if each.is_file()
        )
        self._write(MANIFEST, json.dumps({"files": names}, indent=1) + "\n")

    def _model(self, model: dict[str, Any], texts: list[str]) -> dict[str, Any]:
        """A model with those of its checkpoints that the files hold, and its first text."""
        kept = static_requests.frames(model["checkpoints"], model["default_checkpoint"])
        return {**model, "checkpoints": kept, "sample": (texts or [model["sample"]])[0]}

    async def ask(self, path: str, body: Any = None, **parameters: str | int) -> Any:
        """The answer to a request of the page, kept; None if the model has none."""
        if body is None:
            target = f"{path}?{urlencode(sorted(parameters.items()))}" if parameters else path
            name = f"GET {target}"
        else:
            target, name = path, f"POST {path} {canonical(body)}"
        # Two pages that ask for the same trace get one, whose parts are asked for by its id.
        if name in self.traces:
            return self.traces[name]
        answer = await self._fetch(target, body)
        if path == "/api/traces":
            self.traces[name] = answer
        if answer is not None and name not in self.index:
            self._keep(name, answer)
        return answer

    async def _fetch(self, target: str, body: Any = None) -> Any:
        method = "GET" if body is None else "POST"
        data = await in_process_client.request_json(self.app, method, target, body)
        return None if data is None else json.loads(data)

    def _keep(self, name: str, answer: Any) -> None:
        self.index[name] = self.files
        self.pending[name] = answer
        self.pending_bytes += len(json.dumps(answer))
        if self.pending_bytes > CHUNK_BYTES:
            self._flush()
        self.tell()

    def _flush(self) -> None:
        if self.pending:
            data = escaped(self.pending)
            self._write(f"data/{self.files}.js", f"clearformerAnswers({self.files}, {data});\n")
            self.files += 1
            self.bytes += len(data)
        self.pending, self.pending_bytes = {}, 0

    def _page(self, texts: list[str]) -> str:
        site = {"index": self.index, "texts": texts}
        payload = {"view": "home", "state": {}, "responses": {}, "site": site}
        return export.document(payload, CSP)

    def _write(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content, encoding="utf-8")


def canonical(body: Any) -> str:
    """A body as the page names it: sorted, without defaults (web/src/lib/filed.ts)."""
    given = {
        name: each for name, each in body.items() if each is not None and DEFAULTS.get(name) != each
    }
    return json.dumps(given, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def escaped(value: Any) -> str:
    """JSON without `<`, which could end a script element if somebody pasted it into a page."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
