"""Fails the build if a page loads anything from another host: the site works offline."""

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["'](?:https?:)?//[^"']+|"""
    r"""<link[^>]+rel=["'](?:stylesheet|preload)["'][^>]*href=["'](?:https?:)?//[^"']+"""
)


def check(app: Sphinx, problem: Exception | None) -> None:
    if problem is not None or app.builder.name != "html":
        return
    for page in sorted(Path(app.outdir).rglob("*.html")):
        if found := LOADED.search(page.read_text(encoding="utf-8")):
            raise ExtensionError(f"{page} loads from another host: {found[0]}")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", check)
    return {"parallel_read_safe": True}
