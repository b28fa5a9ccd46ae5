"""Size limits of the source: short functions, a small core, no duplicated code."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src/clearformer"
FUNCTION_LINES = 60
SHARED_LINES = 12
CORE_FILES = range(12, 15)
CORE_LINES = 1_900
TYPE_IGNORES = 12


def modules():
    return sorted(SOURCE.rglob("*.py"))


def test_functions_have_at_most_60_lines():
    """Without the docstring, which documents every parameter."""
    long = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                told = node.body[0] if ast.get_docstring(node) else None
                lines = node.end_lineno - node.lineno + 1
                lines -= 0 if told is None else told.end_lineno - told.lineno + 1
                if lines > FUNCTION_LINES:
                    long[f"{path.relative_to(SOURCE)}:{node.name}"] = lines
    assert not long


def test_core_size_is_limited():
    files = [path.read_text().splitlines() for path in SOURCE.glob("core/*.py")]
    assert sum(map(len, files)) <= CORE_LINES
    assert len(files) - 1 in CORE_FILES, "__init__.py, which states the reading order, apart"


def test_no_duplicated_blocks_of_twelve_lines():
    places = defaultdict(list)
    for path in modules():
        lines = [
            (number, line.strip())
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if line.strip() and not re.match(r"(from|import) ", line)
        ]
        for start in range(len(lines) - SHARED_LINES + 1):
            block = tuple(text for _, text in lines[start : start + SHARED_LINES])
            places[block].append(f"{path.relative_to(SOURCE)}:{lines[start][0]}")
    assert not [where for where in places.values() if len(where) > 1]


def test_type_ignores_are_limited():
    found = [path for path in modules() for _ in re.findall("type: ignore", path.read_text())]
    assert len(found) <= TYPE_IGNORES
