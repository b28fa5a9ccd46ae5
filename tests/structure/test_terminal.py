"""Only modules that escape their output write to the terminal."""

import ast
from pathlib import Path

import pytest

import clearformer

ROOT = Path(clearformer.__file__).parent
WRITERS = {"console.py", "rich_console.py", "cli/output.py", "cli/tables.py"}  # these escape
PLAIN = {"explore/app.py"}  # `python -m`: the schema of our own API, in ASCII
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
STREAMS = ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__")


def writes(source):
    """What in a source writes to a terminal, by line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            direct = name in ("print", "pprint", "input", "os.write", "warnings.showwarning")
            printing = name.endswith((".print", ".print_exc", ".print_exception", ".print_stack"))
            stream = name.startswith(STREAMS) and name.endswith((".write", ".writelines"))
            handed = any(ast.unparse(each.value) in STREAMS[:2] for each in node.keywords)
            if direct or printing or stream or handed:
                found.append((node.lineno, name))
        # rich reads markup, so that no other file has it; of its progress only the bar is used.
        module = getattr(node, "module", None) or ""
        names = [each.name for each in getattr(node, "names", ()) if isinstance(each, ast.alias)]
        if isinstance(node, ast.ImportFrom | ast.Import):
            found += [
                (node.lineno, name)
                for name in ([module] if module else names)
                if name.split(".")[0] == "rich" and name != "rich.progress"
            ]
    return found


def test_only_listed_files_write_to_terminal():
    sources = {file: (ROOT / file).read_text(encoding="utf-8") for file in FILES}
    found = {file: writes(source) for file, source in sources.items()}
    assert {file for file, lines in found.items() if lines} == WRITERS | PLAIN, found


@pytest.mark.parametrize(
    "source",
    [
        "print('x')",
        "import sys\nsys.stdout.write('x')",
        "import sys\nf('x', file=sys.stderr)",
        "sys.stdout.buffer.write(b'x')",
        "console.print('x')",
        "traceback.print_exc()",
        "from rich.text import Text",
        "import rich",
    ],
)
def test_every_form_of_writing_is_found(source):
    assert writes(source)
