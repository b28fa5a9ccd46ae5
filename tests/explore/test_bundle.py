"""The committed web bundle: built from the committed sources, small, and self-contained."""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from clearformer.config import RunConfig
from clearformer.explore import export
from clearformer.families import preset
from clearformer.families.recipes import recipe
from clearformer.plan.planner import plan

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
STATIC = ROOT / "src" / "clearformer" / "explore" / "static"
LICENSES = STATIC / "LICENSES.txt"
LOADED = ["BUILD.json", "course.json", "explorer.css", "explorer.js", "index.html"]
LANGUAGES = [f"strings.{name}.json" for name in export.LANGUAGES]
FILES = [*LOADED[:1], "LICENSES.txt", *LOADED[1:], *LANGUAGES]
# What builds and checks the page, and leaves nothing in it.
TOOLS = {"@sveltejs/vite-plugin-svelte", "svelte-check", "typescript", "vite"}


def sources():
    """What makes the bundle, as web/vite.config.ts counts it."""
    apart = {"node_modules", "openapi.json", "dist"}
    found = {}
    for path in WEB.rglob("*"):
        parts = path.relative_to(WEB).parts
        if path.is_file() and not any(part in apart or part.startswith(".") for part in parts):
            found["/".join(parts)] = path.read_bytes()
    return dict(sorted(found.items()))


def test_bundle_matches_sources():
    whole = hashlib.sha256()
    for name, content in sources().items():
        whole.update(f"{name}\0{len(content)}\0".encode())
        whole.update(content)
    recorded = json.loads((STATIC / "BUILD.json").read_text())
    assert recorded["sources"] == whole.hexdigest(), "web/ has changed: run `make web`"
    assert recorded["files"] == len(sources())


def test_bundle_has_expected_files():
    assert sorted(path.name for path in STATIC.iterdir()) == FILES


def test_bundle_is_small():
    content = [(STATIC / name).read_bytes() for name in LOADED]
    assert sum(map(len, content)) <= 600 * 1024
    assert sum(len(gzip.compress(each, 9)) for each in content) <= 190 * 1024
    # A page loads one language besides English, if any.
    assert all(len((STATIC / name).read_bytes()) <= 80 * 1024 for name in LANGUAGES)


def test_bundle_names_no_other_host():
    for name in (*LOADED, *LANGUAGES):
        text = (STATIC / name).read_text()
        hosts = set(re.findall(r"https?://([\w.-]+)", text))
        assert hosts <= {"www.w3.org"}, name  # the names of SVG and MathML, never fetched
        assert "sourceMappingURL" not in text
        assert str(ROOT) not in text


def test_page_uses_no_random_numbers():
    for path in (WEB / "src").rglob("*"):
        if path.is_file():
            assert "Math.random" not in path.read_text(), path


def test_package_lock_names_no_registry():
    lock = json.loads((WEB / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
    wanted = json.loads((WEB / "package.json").read_text())["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())


def licenses():
    """Name -> (version, licence, text), as LICENSES.txt has them."""
    parts = re.split(r"^=+\n(\S+) (\S+) \((.+)\)\n=+\n", LICENSES.read_text(), flags=re.MULTILINE)
    told = zip(parts[1::4], parts[2::4], parts[3::4], parts[4::4], strict=True)
    return {name: tuple(more) for name, *more in told}


def test_bundle_includes_licences():
    packages = json.loads((WEB / "package-lock.json").read_text())["packages"]
    wanted = json.loads((WEB / "package.json").read_text())["devDependencies"]
    found = licenses()
    assert set(wanted) - TOOLS <= set(found)
    assert {"clsx", "d3-interpolate"} <= set(found)  # which come with svelte and with d3
    for name, (version, kind, text) in found.items():
        locked = packages[f"node_modules/{name}"]
        assert (version, kind) == (locked["version"], locked["license"])
        assert "copyright" in text.lower(), name
        assert len(text) > 500, name
        assert 'provided "as is"' in text.lower().replace("\n", " "), name
    # Whose colours we draw with asks to be named.
    assert "Cynthia Brewer" in found["d3-scale-chromatic"][2]


def test_page_links_to_licences():
    assert (
        '<link rel="license" href="/static/LICENSES.txt" />' in (STATIC / "index.html").read_text()
    )
    assert (STATIC / "explorer.js").read_text().startswith("/*! Licences of the packages")
    # They are in a comment of exported files, which they must not end.
    assert not re.search(r"<!--|--!?>", LICENSES.read_text())


def test_wheel_includes_bundle():
    """hatchling takes all of a package but what git ignores."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        wheel = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/clearformer"]}
    assert STATIC.is_relative_to(ROOT / "src" / "clearformer")
    if shutil.which("git") and (ROOT / ".git").exists():
        names = [str(STATIC / name) for name in FILES]
        ignored = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True)
        assert ignored.stdout == b""


def test_build_is_reproducible(tmp_path):
    """If Node is installed, the bundle is built again and compared; CI installs it."""
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


def test_suggested_trainings_fit_their_minutes():
    """The page suggests presets that make at least fifty steps in the time that it names, on
    a machine of 20 GFLOP a second; `clearformer plan` counts their work."""
    commands = json.loads((WEB / "src" / "strings.en.json").read_text())["tasks"]["commands"]
    for command in commands.values():
        name, minutes = re.fullmatch(
            r"clearformer train (\S+) --minutes (\d+) --out \S+", command
        ).groups()
        data, how = recipe(preset(name))
        counted = plan(RunConfig(model=preset(name), data=data, train=how)).counted
        assert 20e9 * 60 * int(minutes) / counted.operations > 50, command
