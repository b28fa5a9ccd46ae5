"""Core's reading order: its files, import contract, README and docs agree."""

import re
import tomllib
from pathlib import Path

from clearformer import core
from clearformer.core import READING_ORDER

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src/clearformer/core"


def test_reading_order_lists_every_file_once():
    assert sorted(READING_ORDER) == sorted(p.stem for p in CORE.glob("*.py") if p.stem[0] != "_")
    assert ", ".join(READING_ORDER) in " ".join(core.__doc__.split())


def test_import_contract_has_same_order():
    """A layer imports layers below it: the last file to read is the highest."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if "reading order" in each["name"])
    assert layers == [f"clearformer.core.{name}" for name in reversed(READING_ORDER)]


def test_documents_have_same_order():
    """Wherever one is given: `basic patterns masks ...`, or from its first file to its last."""
    order, ends = " ".join(READING_ORDER), (READING_ORDER[0], READING_ORDER[-1])
    stated = {}
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = " ".join(path.read_text().split())
        for found in re.findall(r"\bbasic patterns[a-z ]*[a-z]", text):
            assert found == order, f"{path.name} has another reading order"
            stated[path.name] = found
        for found in re.findall(r"\bfrom (\w+)\.py to (\w+)\.py\b", text):
            assert found == ends, f"{path.name} ends the reading order elsewhere"
            stated[path.name] = found
    assert {"README.md", "equations.md"} <= set(stated)
