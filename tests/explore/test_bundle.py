"""The committed page is built from the committed sources, is small, and reaches for nothing."""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
STATIC = ROOT / "src" / "clearformer" / "explore" / "static"
FILES = ["BUILD.json", "explorer.css", "explorer.js", "index.html"]


def sources():
    """What makes the bundle, as web/vite.config.ts counts it."""
    apart = {"node_modules", "openapi.json", "dist"}
    found = {}
    for path in WEB.rglob("*"):
        parts = path.relative_to(WEB).parts
        if path.is_file() and not any(part in apart or part.startswith(".") for part in parts):
            found["/".join(parts)] = path.read_bytes()
    return dict(sorted(found.items()))


def test_the_bundle_is_built_from_these_sources():
    whole = hashlib.sha256()
    for name, content in sources().items():
        whole.update(f"{name}\0{len(content)}\0".encode())
        whole.update(content)
    recorded = json.loads((STATIC / "BUILD.json").read_text())
    assert recorded["sources"] == whole.hexdigest(), "web/ has changed: run `make web`"
    assert recorded["files"] == len(sources())


def test_no_file_more_and_none_less():
    assert sorted(path.name for path in STATIC.iterdir()) == FILES


def test_the_bundle_is_small():
    content = [(STATIC / name).read_bytes() for name in FILES]
    assert sum(map(len, content)) <= 350 * 1024
    assert sum(len(gzip.compress(each, 9)) for each in content) <= 120 * 1024


def test_the_bundle_names_no_other_host():
    for name in FILES:
        text = (STATIC / name).read_text()
        hosts = set(re.findall(r"https?://([\w.-]+)", text))
        assert hosts <= {"www.w3.org"}, name  # the names of SVG and MathML, never fetched
        assert "sourceMappingURL" not in text
        assert str(ROOT) not in text


def test_no_number_on_the_page_is_made_up():
    for path in (WEB / "src").rglob("*"):
        if path.is_file():
            assert "Math.random" not in path.read_text(), path


def test_the_lock_names_no_registry():
    lock = json.loads((WEB / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
    wanted = json.loads((WEB / "package.json").read_text())["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())


def test_building_again_gives_the_same_bytes(tmp_path):
    """Where Node is at hand, the bundle is built anew and compared; CI fetches what that needs."""
    modules = WEB / "node_modules"
    if not shutil.which("npm"):
        pytest.skip("needs Node: apt install nodejs npm")
    if not modules.exists() and os.environ.get("CI") != "true":
        pytest.skip("needs web/node_modules: `make web` brings them")
    environment = {**os.environ, "EXPLORER_OUT": str(tmp_path / "static")}
    if not modules.exists():
        subprocess.run(["npm", "ci"], cwd=WEB, check=True, capture_output=True)
    subprocess.run(
        ["npm", "run", "build"], cwd=WEB, env=environment, check=True, capture_output=True
    )
    for name in FILES:
        built = (tmp_path / "static" / name).read_bytes()
        assert built == (STATIC / name).read_bytes(), f"{name} differs: run `make web`"
