"""The documentation site: generated pages, and that every page can be reached."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def extension(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_api_reference_has_every_public_package():
    api = extension("api_reference")
    packages = {path.parent.name for path in api.SOURCE.glob("*/__init__.py")}
    named = {name.removeprefix("clearformer.") for name in api.pages()}
    assert packages - named <= api.INTERNAL
    assert {"clearformer", "core", "config", "families"} <= named


def test_core_is_documented_in_reading_order():
    api = extension("api_reference")
    names = [path.stem for path in api.pages()["clearformer.core"]]
    assert names[1] == "basic"
    order = ["basic", "kernels", "attention", "block", "stack", "model", "init"]
    assert sorted(order, key=names.index) == order


def test_package_without_reading_order_is_sorted(tmp_path):
    api = extension("api_reference")
    for name in ("b", "a", "c", "_hidden"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "__init__.py").write_text('"""Read c first, then what is left."""')
    assert [path.stem for path in api.reading_order(tmp_path)] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("plain", "markup"),
    [
        ("The `weights` of x_1*x_2.", ["The ``weights`` of x\\_1\\*x\\_2.", ""]),
        ("A *pattern* and |x|", ["A *pattern* and \\|x\\|", ""]),
        ("First.\n\n    code here", ["First.", "", "::", "", "        code here", ""]),
        ("- one\n- two", ["- one", "- two", ""]),
        (">>> 1 * 2\n2", [">>> 1 * 2", "2", ""]),
        (
            "Open x.\n\nArgs:\n    a_b (int, optional): Of `x_1`\n        or *c_.\n\nThe_end.",
            [
                *("Open x.", "", "Args:", "    a_b (int, optional): Of ``x_1``"),
                *("        or \\*c\\_.", "", "", "The\\_end.", ""),
            ],
        ),
        (
            "Example:\n    f(**x)\n\n    g_",
            ["Example:", "    ::", "", "        f(**x)", "", "        g_", ""],
        ),
    ],
)
def test_docstrings_are_escaped(plain, markup):
    lines = plain.split("\n")
    extension("api_reference").escape_docstring(None, "function", "f", None, None, lines)
    assert lines == markup


def test_command_reference_has_every_command():
    from clearformer.cli.main import VERBS

    reference = extension("command_reference")
    found = reference.commands()
    assert found == list(VERBS)
    page = reference.page("selftest", reference.help_texts("selftest")[0])
    assert page.startswith("# clearformer selftest\n\n")
    assert "--only" in page
    assert "\x1b" not in page


def test_every_page_is_in_a_table_of_contents():
    """Sphinx checks this too, but only where it is installed."""
    pages = [
        DOCS / "index.md",
        *DOCS.glob("*/index.md"),
        DOCS / "project.md",
        DOCS / "mathematics.md",
    ]
    listed = {DOCS / "index"}
    for page in pages:
        for table in re.findall(r"```{toctree}\n(.*?)```", page.read_text(), re.DOTALL):
            names = [line.split()[0] for line in table.splitlines() if line and line[0] != ":"]
            listed |= {(page.parent / name).resolve() for name in names}
    written = {path.with_suffix("") for path in [*DOCS.glob("*.md"), *DOCS.glob("guide/*.md")]}
    assert written - listed == set()
